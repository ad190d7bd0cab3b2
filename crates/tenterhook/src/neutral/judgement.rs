//! What a verification came to, for programs and for people.

use std::fmt;

use serde::Serialize;

/// What the observers of a training do to it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The observers that were judged, in registration order.
    pub judged: Vec<String>,
    /// The hooks that were not, and why. Controllers and update hooks are not listed: they are meant to
    /// change training, and were in all runs.
    pub not_judged: Vec<NotJudged>,
    /// The judged ones that the runs say little about.
    pub not_exercised: Vec<NotExercised>,
    /// The steps that were compared.
    pub steps: u64,
    /// What was compared at each.
    pub compared: Compared,
    /// How many runs it took.
    pub runs: usize,
    /// What was found.
    pub finding: Finding,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "result")]
pub enum Finding {
    /// The same bits with and without the observers.
    Neutral,
    /// There are no observers to judge, so nothing was run.
    NothingToJudge,
    /// Two runs without observers differ: the program itself is not deterministic.
    NotDeterministic {
        /// The first difference between them.
        difference: Difference,
    },
    /// Observers change training.
    Differs {
        /// The first difference.
        difference: Difference,
        /// The hooks that cause it: each of these sets is enough.
        causes: Vec<Vec<String>>,
    },
}

/// A hook that was not judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotJudged {
    /// Its name.
    pub hook: String,
    /// Why.
    #[serde(flatten)]
    pub reason: Reason,
}

/// Why a hook was not judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Reason {
    /// Something that may change training declares that it reads what the hook writes. It was in all runs.
    ReadBy {
        /// Who reads.
        reader: String,
        /// What.
        name: String,
    },
    /// It only saves, perhaps to a directory of the user's. It was in no run.
    SavesCheckpoints,
    /// It was in no run.
    Disabled,
}

/// A judged observer that the runs say little about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotExercised {
    /// Its name.
    pub hook: String,
    /// Why.
    pub why: String,
}

/// How much was compared at each step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// The parameters.
    pub parameters: usize,
    /// Their values.
    pub values: usize,
    /// The tensors of optimizers' state.
    pub optimizer_tensors: usize,
}

impl Compared {
    pub(super) fn count(&mut self, what: &What, shape: &[usize]) {
        match what {
            What::Parameter { .. } => {
                self.parameters += 1;
                self.values += shape.iter().product::<usize>();
            }
            What::OptimizerState { .. } => self.optimizer_tensors += 1,
            What::Rates { .. } => {}
        }
    }
}

/// Where two runs first differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The step; 0 is before the first.
    pub step: u64,
    /// The losses of that step, if they differ.
    pub losses: Option<Losses>,
    /// What else differs: parameters in the module's order, then what optimizers keep.
    pub tensors: Vec<Changed>,
    /// How many steps the run without the observers had and how many the other, where one of them ended before
    /// this step.
    pub ended: Option<[u64; 2]>,
}

/// Two losses of one step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Losses {
    /// Without the observers.
    #[serde(with = "tenterhook_core::number")]
    pub without: f64,
    /// With them.
    #[serde(with = "tenterhook_core::number")]
    pub with: f64,
}

/// Something that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// What.
    #[serde(flatten)]
    pub what: What,
    /// The largest absolute difference of its values, where both runs have it in the same shape.
    #[serde(with = "tenterhook_core::number::option")]
    pub largest: Option<f64>,
}

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum What {
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
    /// Learning rate, momentum and weight decay of a group of parameters.
    Rates {
        /// The optimizer.
        optimizer: String,
        /// The group.
        group: String,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Parameter { name } => write!(f, "parameter `{name}`"),
            What::OptimizerState { optimizer, name } => write!(f, "`{name}` in the state of {optimizer}"),
            What::Rates { optimizer, group } => {
                write!(f, "the learning rate, momentum or weight decay of group `{group}` of {optimizer}")
            }
        }
    }
}

impl fmt::Display for NotJudged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hook = &self.hook;
        match &self.reason {
            Reason::ReadBy { reader, name } => {
                write!(f, "`{hook}`: `{reader}` reads `{name}` from it, so it was in all runs")
            }
            Reason::SavesCheckpoints => write!(f, "`{hook}`: it saves checkpoints, so it was in no run"),
            Reason::Disabled => write!(f, "`{hook}`: it is disabled, so it was in no run"),
        }
    }
}

impl Difference {
    /// What differs, a line each.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some([without, with]) = self.ended {
            lines.push(format!(
                "training ended after step {without} without the observers, with them after {with}"
            ));
        }
        let is_parameter = |changed: &&Changed| matches!(changed.what, What::Parameter { .. });
        let (parameters, rest): (Vec<_>, Vec<_>) = self.tensors.iter().partition(is_parameter);
        for (changed, kind) in [(parameters, "parameters"), (rest, "tensors of optimizers")] {
            let Some(first) = changed.first() else { continue };
            let size =
                first.largest.map(|largest| format!(", by {largest:.3e} at the most")).unwrap_or_default();
            let more = changed.len() - 1;
            let more = if more > 0 { format!("; {more} more {kind}") } else { String::new() };
            lines.push(format!("{}{size}{more}", first.what));
        }
        if let Some(Losses { without, with }) = self.losses {
            lines.push(format!("the loss is {without} without the observers, {with} with them"));
        }
        lines
    }
}

impl Judgement {
    pub(super) fn of_nothing(not_judged: Vec<NotJudged>) -> Judgement {
        Judgement {
            judged: Vec::new(),
            not_judged,
            not_exercised: Vec::new(),
            steps: 0,
            compared: Compared::default(),
            runs: 0,
            finding: Finding::NothingToJudge,
        }
    }

    /// Whether observers were judged and change nothing.
    #[must_use]
    pub fn is_neutral(&self) -> bool {
        self.finding == Finding::Neutral
    }

    fn verdict(&self) -> String {
        let steps = counted(self.steps, "step");
        match &self.finding {
            Finding::Neutral => {
                let who = counted(self.judged.len() as u64, "observer");
                let change = if self.judged.len() == 1 { "changes" } else { "change" };
                format!("neutral: {who} {change} nothing in {steps}")
            }
            Finding::NothingToJudge => "nothing was compared: there is no observer to judge".to_owned(),
            Finding::NotDeterministic { difference } => format!(
                "not deterministic: two runs without the observers differ at step {}, so they cannot be judged",
                difference.step
            ),
            Finding::Differs { difference, causes } => {
                let all: Vec<_> = causes.iter().map(|cause| in_words(cause)).collect();
                let change = if all.len() > 1 || causes[0].len() > 1 { "change" } else { "changes" };
                format!(
                    "not neutral: {} {change} training, first at step {}",
                    all.join("; and "),
                    difference.step
                )
            }
        }
    }
}

fn in_words(cause: &[String]) -> String {
    match cause {
        [hook] => format!("`{hook}`"),
        hooks => format!("`{}` together", hooks.join("` and `")),
    }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Several lines, the verdict first.
impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.verdict())?;
        let line = |f: &mut fmt::Formatter<'_>, key: &str, text: &str| write!(f, "\n  {key:<14}{text}");
        if let Finding::NotDeterministic { difference } | Finding::Differs { difference, .. } = &self.finding
        {
            difference.lines().iter().try_for_each(|text| line(f, "differs", text))?;
        }
        if !self.judged.is_empty() {
            line(f, "observers", &format!("`{}`", self.judged.join("`, `")))?;
            let Compared { parameters, values, optimizer_tensors } = self.compared;
            let parameters = counted(parameters as u64, "parameter");
            let tensors = counted(optimizer_tensors as u64, "tensor");
            let runs = counted(self.runs as u64, "run");
            line(
                f,
                "compared",
                &format!(
                    "bit for bit, at every step: the loss, {parameters} ({values} values), {tensors} of optimizer state; {runs}"
                ),
            )?;
        }
        self.not_judged.iter().try_for_each(|hook| line(f, "not judged", &hook.to_string()))?;
        let not_exercised = |hook: &NotExercised| format!("`{}`: {}", hook.hook, hook.why);
        self.not_exercised.iter().try_for_each(|hook| line(f, "not exercised", &not_exercised(hook)))
    }
}
