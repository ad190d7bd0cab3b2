//! What is seen of a module's points: in which phases, and in which shapes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenterhook::run::Interrupt;
use tenterhook::{
    Activation, HookResult, Observer, Phase, PredictBatchStart, TestBatchStart, TrainBatchStart,
    ValidationBatchStart, hook,
};

/// The phases that show points, in the order in which they are run.
pub(super) const PHASES: [Phase; 4] = [Phase::Train, Phase::Validate, Phase::Test, Phase::Predict];

pub(super) fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Train => "train",
        Phase::Validate | Phase::SanityCheck => "validate",
        Phase::Test => "test",
        Phase::Predict => "predict",
    }
}

/// The shapes of one number of dimensions: text that grows has many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) low: Vec<usize>,
    pub(super) high: Vec<usize>,
    pub(super) least: usize,
    pub(super) most: usize,
}

impl Span {
    fn of(shape: &[usize]) -> Span {
        let elements = shape.iter().product();
        Span { low: shape.to_vec(), high: shape.to_vec(), least: elements, most: elements }
    }

    /// Takes in one more shape, if it has as many dimensions.
    fn widen(&mut self, shape: &[usize]) -> bool {
        if self.low.len() != shape.len() {
            return false;
        }
        for ((low, high), size) in self.low.iter_mut().zip(&mut self.high).zip(shape) {
            (*low, *high) = ((*low).min(*size), (*high).max(*size));
        }
        let elements = shape.iter().product();
        (self.least, self.most) = (self.least.min(elements), self.most.max(elements));
        true
    }

    pub(super) fn elements(&self) -> String {
        range(self.least, self.most)
    }
}

fn range(low: usize, high: usize) -> String {
    if low == high { low.to_string() } else { format!("{low}..={high}") }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<_> = self.low.iter().zip(&self.high).map(|(low, high)| range(*low, *high)).collect();
        write!(f, "[{}]", sizes.join(", "))
    }
}

/// One point, with what was seen of it.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) name: String,
    seen: Vec<(Phase, Vec<Span>)>,
}

impl Point {
    /// Its shapes, each with the phases that show it in that shape.
    pub(super) fn spans(&self) -> Vec<(&Span, Vec<Phase>)> {
        let mut spans: Vec<(&Span, Vec<Phase>)> = Vec::new();
        for (phase, span) in
            self.seen.iter().flat_map(|(phase, of)| of.iter().map(move |span| (*phase, span)))
        {
            match spans.iter_mut().find(|(known, _)| *known == span) {
                Some((_, phases)) => phases.push(phase),
                None => spans.push((span, vec![phase])),
            }
        }
        spans
    }

    fn note(&mut self, phase: Phase, shape: &[usize]) {
        let at = self.seen.iter().position(|(known, _)| *known == phase).unwrap_or_else(|| {
            self.seen.push((phase, Vec::new()));
            self.seen.len() - 1
        });
        let spans = &mut self.seen[at].1;
        if !spans.iter_mut().any(|span| span.widen(shape)) {
            spans.push(Span::of(shape));
        }
    }
}

#[derive(Default)]
struct Seen {
    /// In the order in which they were first shown.
    points: Vec<Point>,
    batches: BTreeSet<&'static str>,
}

/// What the hooks of all phases have seen.
#[derive(Clone, Default)]
pub(super) struct Look(Arc<Mutex<Seen>>);

impl Look {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A hook that looks, and lets training end after its first batch.
    pub(super) fn hook(&self, interrupt: Interrupt) -> Looking {
        Looking { look: self.clone(), interrupt }
    }

    pub(super) fn points(&self) -> Vec<Point> {
        self.seen().points.clone()
    }

    pub(super) fn had_batch(&self, phase: Phase) -> bool {
        self.seen().batches.contains(word(phase))
    }

    pub(super) fn had_point(&self, phase: Phase) -> bool {
        self.seen().points.iter().any(|point| point.seen.iter().any(|(known, _)| *known == phase))
    }

    fn begin(&self, phase: Phase) {
        self.seen().batches.insert(word(phase));
    }

    fn note(&self, point: &str, phase: Phase, shape: &[usize]) {
        let points = &mut self.seen().points;
        let at = points.iter().position(|known| known.name == point).unwrap_or_else(|| {
            points.push(Point { name: point.to_owned(), seen: Vec::new() });
            points.len() - 1
        });
        points[at].note(phase, shape);
    }
}

pub(super) struct Looking {
    look: Look,
    interrupt: Interrupt,
}

#[hook(name = "tenter_points", tier = "built_in")]
impl Observer for Looking {
    fn on_train_batch_start(&mut self, _: &TrainBatchStart) -> HookResult {
        self.look.begin(Phase::Train);
        self.interrupt.request("one batch is enough");
        Ok(())
    }

    fn on_validation_batch_start(&mut self, _: &ValidationBatchStart) -> HookResult {
        self.look.begin(Phase::Validate);
        Ok(())
    }

    fn on_test_batch_start(&mut self, _: &TestBatchStart) -> HookResult {
        self.look.begin(Phase::Test);
        Ok(())
    }

    fn on_predict_batch_start(&mut self, _: &PredictBatchStart) -> HookResult {
        self.look.begin(Phase::Predict);
        Ok(())
    }

    fn on_activation(&mut self, cx: &Activation) -> HookResult {
        for tensor in cx.values.iter() {
            self.look.note(cx.point, cx.phase, tensor.shape());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_grow_are_shown_as_a_range_and_others_apart() {
        let look = Look::default();
        for length in [4, 1, 9] {
            look.note("mlp", Phase::Predict, &[1, length, 8]);
        }
        look.note("mlp", Phase::Train, &[16, 32, 8]);
        look.note("mlp", Phase::Test, &[16, 32, 8]);
        look.note("mlp", Phase::Test, &[16]);
        look.note("head", Phase::Test, &[]);
        let points = look.points();
        let shown: Vec<_> = points[0]
            .spans()
            .into_iter()
            .map(|(span, phases)| {
                let phases: Vec<_> = phases.into_iter().map(word).collect();
                format!("{span} {} {}", span.elements(), phases.join(","))
            })
            .collect();
        assert_eq!(shown, ["[1, 1..=9, 8] 8..=72 predict", "[16, 32, 8] 4096 train,test", "[16] 16 test"]);
        assert_eq!(points[1].spans()[0].0.to_string(), "[]");
        assert!(look.had_point(Phase::Train) && !look.had_point(Phase::Validate));
    }
}
