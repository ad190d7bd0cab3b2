//! Records the hook points of a module, with the phases and shapes in which they occur.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenterhook::hook::EventResult;
use tenterhook::run::Interrupt;
use tenterhook::{Event, EventRef, Hook, HookSpec, Phase, Tier};

/// The phases that have points, in the order in which they run.
pub(super) const PHASES: [Phase; 4] = [Phase::Train, Phase::Validate, Phase::Test, Phase::Predict];

pub(super) fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Train => "train",
        Phase::Validate | Phase::SanityCheck => "validate",
        Phase::Test => "test",
        Phase::Predict => "predict",
    }
}

/// A range of shapes with the same number of dimensions, such as those of a sequence that grows during generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShapeRange {
    pub(super) smallest: Vec<usize>,
    pub(super) largest: Vec<usize>,
    pub(super) min_elements: usize,
    pub(super) max_elements: usize,
}

impl ShapeRange {
    fn of(shape: &[usize]) -> ShapeRange {
        let elements = shape.iter().product();
        let (smallest, largest) = (shape.to_vec(), shape.to_vec());
        ShapeRange { smallest, largest, min_elements: elements, max_elements: elements }
    }

    /// Adds a shape, if it has the same number of dimensions.
    fn add(&mut self, shape: &[usize]) -> bool {
        if self.smallest.len() != shape.len() {
            return false;
        }
        for ((smallest, largest), size) in self.smallest.iter_mut().zip(&mut self.largest).zip(shape) {
            (*smallest, *largest) = ((*smallest).min(*size), (*largest).max(*size));
        }
        let elements = shape.iter().product();
        self.min_elements = self.min_elements.min(elements);
        self.max_elements = self.max_elements.max(elements);
        true
    }

    pub(super) fn elements(&self) -> String {
        range(self.min_elements, self.max_elements)
    }
}

fn range(low: usize, high: usize) -> String {
    if low == high { low.to_string() } else { format!("{low}..={high}") }
}

impl fmt::Display for ShapeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self.smallest.iter().zip(&self.largest).map(|(low, high)| range(*low, *high));
        write!(f, "[{}]", sizes.collect::<Vec<_>>().join(", "))
    }
}

/// A hook point, with its shapes in each phase.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) name: String,
    by_phase: Vec<(Phase, ShapeRange)>,
}

impl Point {
    /// Its shapes, each with the phases in which it has them.
    pub(super) fn shapes(&self) -> Vec<(&ShapeRange, Vec<Phase>)> {
        let mut all: Vec<(&ShapeRange, Vec<Phase>)> = Vec::new();
        for (phase, shapes) in &self.by_phase {
            match all.iter_mut().find(|(known, _)| *known == shapes) {
                Some((_, phases)) => phases.push(*phase),
                None => all.push((shapes, vec![*phase])),
            }
        }
        all
    }

    fn add(&mut self, phase: Phase, shape: &[usize]) {
        let mut of_phase = self.by_phase.iter_mut().filter(|(known, _)| *known == phase);
        if !of_phase.any(|(_, shapes)| shapes.add(shape)) {
            self.by_phase.push((phase, ShapeRange::of(shape)));
        }
    }
}

#[derive(Default)]
struct Recorded {
    /// In the order of their first activation.
    points: Vec<Point>,
    /// The phases that had a batch.
    phases: Vec<Phase>,
}

/// A hook that records points. Its clones record into the same list.
#[derive(Clone, Default)]
pub(super) struct PointRecorder {
    recorded: Arc<Mutex<Recorded>>,
    interrupt: Interrupt,
}

impl PointRecorder {
    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A clone that interrupts training after its first batch.
    pub(super) fn interrupting(&self, interrupt: Interrupt) -> PointRecorder {
        PointRecorder { interrupt, ..self.clone() }
    }

    pub(super) fn points(&self) -> Vec<Point> {
        self.recorded().points.clone()
    }

    pub(super) fn had_batch(&self, phase: Phase) -> bool {
        self.recorded().phases.contains(&phase)
    }

    pub(super) fn had_point(&self, phase: Phase) -> bool {
        self.recorded().points.iter().any(|point| point.by_phase.iter().any(|(known, _)| *known == phase))
    }

    fn add(&self, point: &str, phase: Phase, shape: &[usize]) {
        let points = &mut self.recorded().points;
        let at = points.iter().position(|known| known.name == point).unwrap_or_else(|| {
            points.push(Point { name: point.to_owned(), by_phase: Vec::new() });
            points.len() - 1
        });
        points[at].add(phase, shape);
    }
}

impl Hook for PointRecorder {
    fn spec(&self) -> HookSpec {
        let batch_starts = [
            Event::TrainBatchStart,
            Event::ValidationBatchStart,
            Event::TestBatchStart,
            Event::PredictBatchStart,
        ];
        let spec = HookSpec::observer("tenter_points").tier(Tier::BuiltIn).wants(Event::Activation);
        batch_starts.into_iter().fold(spec, HookSpec::wants)
    }

    fn deliver(&mut self, event: EventRef<'_>) -> EventResult {
        let phase = match event {
            EventRef::Activation(cx) => {
                for tensor in cx.values.iter() {
                    self.add(cx.point, cx.phase, tensor.shape());
                }
                return Ok(());
            }
            EventRef::TrainBatchStart(_) => {
                self.interrupt.request("one batch is enough");
                Phase::Train
            }
            EventRef::ValidationBatchStart(_) => Phase::Validate,
            EventRef::TestBatchStart(_) => Phase::Test,
            _ => Phase::Predict,
        };
        self.recorded().phases.push(phase);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_with_the_same_number_of_dimensions_are_shown_as_a_range() {
        let recorder = PointRecorder::default();
        for length in [4, 1, 9] {
            recorder.add("mlp", Phase::Predict, &[1, length, 8]);
        }
        recorder.add("mlp", Phase::Train, &[16, 32, 8]);
        recorder.add("mlp", Phase::Test, &[16, 32, 8]);
        recorder.add("mlp", Phase::Test, &[16]);
        recorder.add("head", Phase::Test, &[]);
        let points = recorder.points();
        let shown: Vec<_> = points[0]
            .shapes()
            .into_iter()
            .map(|(shapes, phases)| {
                let phases: Vec<_> = phases.into_iter().map(phase_name).collect();
                format!("{shapes} {} {}", shapes.elements(), phases.join(","))
            })
            .collect();
        assert_eq!(shown, ["[1, 1..=9, 8] 8..=72 predict", "[16, 32, 8] 4096 train,test", "[16] 16 test"]);
        assert_eq!(points[1].shapes()[0].0.to_string(), "[]");
        assert!(recorder.had_point(Phase::Train) && !recorder.had_point(Phase::Validate));
    }
}
