//! The report of a verification, as data and as text.

use std::fmt;

use serde::Serialize;
use tenterhook_core::readable::plural;

/// Whether the observers of a training run are neutral.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NeutralityReport {
    /// The observers that were tested, in registration order.
    pub tested: Vec<String>,
    /// The hooks that were not tested. Controllers and update hooks are not listed: they may change training,
    /// and were in all runs.
    pub excluded: Vec<ExcludedHook>,
    /// The tested observers that did nothing or too little in the runs.
    pub not_exercised: Vec<NotExercised>,
    /// The number of compared steps.
    pub steps: u64,
    /// What was compared at each step.
    pub compared: ComparedCounts,
    /// The number of runs.
    pub runs: usize,
    /// The result.
    pub finding: Finding,
}

impl NeutralityReport {
    pub(super) fn without_observers(excluded: Vec<ExcludedHook>) -> NeutralityReport {
        NeutralityReport {
            tested: Vec::new(),
            excluded,
            not_exercised: Vec::new(),
            steps: 0,
            compared: ComparedCounts::default(),
            runs: 0,
            finding: Finding::NothingToTest,
        }
    }

    /// Whether observers were tested and exercised, and change nothing. It says nothing about those in
    /// [`not_exercised`](NeutralityReport::not_exercised).
    #[must_use]
    pub fn is_neutral(&self) -> bool {
        self.finding == Finding::Neutral
    }
}

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "result")]
pub enum Finding {
    /// The same bits with and without the observers.
    Neutral,
    /// There are no observers to test, so nothing was run.
    NothingToTest,
    /// The same bits, but no observer was exercised, which proves nothing.
    NothingExercised,
    /// A run differs when it is repeated: the program itself is not deterministic.
    NotDeterministic {
        /// The run: with which observers.
        run: String,
        /// The first difference between the two. It may contain the step alone.
        difference: Difference,
    },
    /// Observers change training.
    Differs {
        /// The first difference.
        difference: Difference,
        /// The hooks that cause it: each of these sets is sufficient. Hooks that change training only in
        /// later steps are not among them.
        causes: Vec<Vec<String>>,
    },
}

/// A hook that was not tested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExcludedHook {
    /// The hook's name.
    pub hook: String,
    /// The reason.
    #[serde(flatten)]
    pub reason: ExclusionReason,
}

/// Why a hook was not tested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
#[non_exhaustive]
pub enum ExclusionReason {
    /// A hook that may change training declares that it reads from this one. It was in all runs.
    ReadBy {
        /// The hook that reads.
        reader: String,
        /// The name that it reads.
        name: String,
    },
    /// It saves checkpoints, possibly outside of the run directory. It was in no run.
    SavesCheckpoints,
    /// It is disabled. It was in no run.
    Disabled,
}

/// A tested observer that did nothing or too little in the runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotExercised {
    /// The hook's name.
    pub hook: String,
    /// The reason.
    pub why: String,
}

/// The number of items compared at each step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ComparedCounts {
    /// Parameters.
    pub parameters: usize,
    /// Values of the parameters.
    pub values: usize,
    /// Tensors of optimizer state.
    pub optimizer_tensors: usize,
    /// Metrics of validations.
    pub metrics: usize,
}

impl ComparedCounts {
    pub(super) fn count(&mut self, item: &ComparedItem, shape: &[usize]) {
        match item {
            ComparedItem::Parameter { .. } => {
                self.parameters += 1;
                self.values += shape.iter().product::<usize>();
            }
            ComparedItem::OptimizerState { .. } => self.optimizer_tensors += 1,
            ComparedItem::Metric { .. } => self.metrics += 1,
            ComparedItem::Rates { .. } => {}
        }
    }
}

/// The points at which runs are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ComparePoint {
    /// Before the first step, and after each step.
    #[default]
    Step,
    /// The end of a validation.
    Validation,
    /// The end of training.
    End,
}

/// The first difference between two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The step; 0 is before the first.
    pub step: u64,
    /// The point after this step.
    pub place: ComparePoint,
    /// The losses of the step, if they differ.
    pub losses: Option<LossPair>,
    /// The items that differ: parameters in the module's order, then optimizer state; for a validation,
    /// metrics.
    pub tensors: Vec<ChangedItem>,
    /// The number of steps without and with the observers, if one of the runs ended before this step.
    pub ended: Option<[u64; 2]>,
}

impl Difference {
    /// A difference of which only the step is known.
    pub(super) fn unknown(step: u64) -> Difference {
        Difference { step, place: ComparePoint::Step, losses: None, tensors: Vec::new(), ended: None }
    }
}

/// Two losses of one step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LossPair {
    /// Without the observers.
    #[serde(with = "tenterhook_core::number")]
    pub without: f64,
    /// With them.
    #[serde(with = "tenterhook_core::number")]
    pub with: f64,
}

/// An item that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangedItem {
    /// The item.
    #[serde(flatten)]
    pub what: ComparedItem,
    /// The largest absolute difference of its values, if both runs have it in the same shape.
    #[serde(with = "tenterhook_core::number::option")]
    pub largest: Option<f64>,
}

/// An item that is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum ComparedItem {
    /// A parameter.
    Parameter {
        /// Its name.
        name: String,
    },
    /// A tensor of an optimizer's state.
    OptimizerState {
        /// The optimizer.
        optimizer: String,
        /// The tensor's name.
        name: String,
    },
    /// Learning rate, momentum and weight decay of a parameter group.
    Rates {
        /// The optimizer.
        optimizer: String,
        /// The group.
        group: String,
    },
    /// A metric of a validation.
    Metric {
        /// Its name.
        name: String,
    },
}

impl ComparedItem {
    /// The kind, as in "2 more tensors".
    fn kind(&self) -> &'static str {
        match self {
            ComparedItem::Parameter { .. } => "parameter",
            ComparedItem::OptimizerState { .. } => "tensor",
            ComparedItem::Rates { .. } => "group",
            ComparedItem::Metric { .. } => "metric",
        }
    }
}

impl fmt::Display for ComparedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ComparedItem::Parameter { name } => write!(f, "parameter `{name}`"),
            ComparedItem::OptimizerState { optimizer, name } => {
                write!(f, "`{name}` in the state of {optimizer}")
            }
            ComparedItem::Metric { name } => write!(f, "metric `{name}`"),
            ComparedItem::Rates { optimizer, group } => {
                write!(f, "the learning rate, momentum or weight decay of group `{group}` of {optimizer}")
            }
        }
    }
}

impl fmt::Display for ExcludedHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hook = &self.hook;
        match &self.reason {
            ExclusionReason::ReadBy { reader, name } => {
                write!(f, "`{hook}`: `{reader}` reads `{name}` from it, so it was in all runs")
            }
            ExclusionReason::SavesCheckpoints => {
                write!(f, "`{hook}`: it saves checkpoints, so it was in no run")
            }
            ExclusionReason::Disabled => write!(f, "`{hook}`: it is disabled, so it was in no run"),
        }
    }
}

impl Difference {
    fn location(&self) -> String {
        let step = self.step;
        match self.place {
            ComparePoint::Step => format!("step {step}"),
            ComparePoint::Validation => format!("the validation after step {step}"),
            ComparePoint::End => format!("the end of training after step {step}"),
        }
    }

    /// One line per difference between two runs, which `one` and `other` describe.
    fn lines(&self, [one, other]: [&str; 2]) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some([without, with]) = self.ended {
            lines.push(format!("training ended after step {without} {one}, after step {with} {other}"));
        }
        for kind in ["parameter", "tensor", "group", "metric"] {
            let mut changed = self.tensors.iter().filter(|changed| changed.what.kind() == kind);
            let Some(first) = changed.next() else { continue };
            let size = first.largest.map(|largest| format!(", by at most {largest:.3e}")).unwrap_or_default();
            let more = match changed.count() {
                0 => String::new(),
                more => format!("; {more} more {kind}{}", if more == 1 { "" } else { "s" }),
            };
            lines.push(format!("{}{size}{more}", first.what));
        }
        if let Some(LossPair { without, with }) = self.losses {
            lines.push(format!("the loss is {without} {one}, {with} {other}"));
        }
        lines
    }
}

impl NeutralityReport {
    fn verdict(&self) -> String {
        let steps = plural(self.steps, "step");
        let idle: Vec<_> = self.not_exercised.iter().map(|idle| format!("`{}`", idle.hook)).collect();
        let not_exercised =
            if idle.is_empty() { String::new() } else { format!("; not exercised: {}", idle.join(", ")) };
        match &self.finding {
            Finding::Neutral => {
                let (all, exercised) = (self.tested.len(), self.tested.len() - idle.len());
                let observers = plural(all as u64, "observer");
                let observers =
                    if exercised < all { format!("{exercised} of {observers}") } else { observers };
                let change = if exercised == 1 { "changes" } else { "change" };
                format!("neutral: {observers} {change} nothing in {steps}{not_exercised}")
            }
            Finding::NothingExercised => {
                format!("nothing was proved: no observer was exercised in {steps}{not_exercised}")
            }
            Finding::NothingToTest => "nothing was compared: there is no observer to test".to_owned(),
            Finding::NotDeterministic { run, difference } => format!(
                "not deterministic: the run {run} differs when it is repeated, first at {}; observers cannot be tested",
                difference.location()
            ),
            Finding::Differs { difference, causes } => {
                let names = |cause: &Vec<String>| match &cause[..] {
                    [hook] => format!("`{hook}`"),
                    hooks => format!("`{}` together", hooks.join("` and `")),
                };
                let all: Vec<_> = causes.iter().map(names).collect();
                let change = if all.len() > 1 || causes[0].len() > 1 { "change" } else { "changes" };
                let location = difference.location();
                format!("not neutral: {} {change} training, first at {location}", all.join("; and "))
            }
        }
    }
}

/// Several lines, the verdict first.
impl fmt::Display for NeutralityReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.verdict())?;
        let mut line = |key: &str, text: &str| write!(f, "\n  {key:<14}{text}");
        let differs = match &self.finding {
            Finding::Differs { difference, .. } => difference.lines(["without the observers", "with them"]),
            Finding::NotDeterministic { difference, .. } => {
                difference.lines(["the first time", "the second time"])
            }
            _ => Vec::new(),
        };
        differs.iter().try_for_each(|text| line("differs", text))?;
        if !self.tested.is_empty() {
            line("observers", &format!("`{}`", self.tested.join("`, `")))?;
            let ComparedCounts { parameters, values, optimizer_tensors, metrics } = self.compared;
            let parameters = plural(parameters as u64, "parameter");
            let tensors = plural(optimizer_tensors as u64, "tensor");
            let metrics = match metrics {
                0 => String::new(),
                count => format!("; {} of validations", plural(count as u64, "metric")),
            };
            let runs = plural(self.runs as u64, "run");
            let text = format!(
                "bit for bit, at every step: the loss, {parameters} ({values} values), {tensors} of optimizer state{metrics}; {runs}"
            );
            line("compared", &text)?;
        }
        self.excluded.iter().try_for_each(|hook| line("excluded", &hook.to_string()))?;
        self.not_exercised
            .iter()
            .try_for_each(|NotExercised { hook, why }| line("not exercised", &format!("`{hook}`: {why}")))
    }
}
