//! What a verification came to, for programs and for people.

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
    /// The same bits, but none of the observers was exercised: that says nothing about them.
    NothingExercised,
    /// The same run came to something else the second time: the program itself is not deterministic.
    NotDeterministic {
        /// Which run: with which observers.
        run: String,
        /// The first difference between the two. Where all that is known is that they part ways, it names the
        /// step alone.
        difference: Difference,
    },
    /// Observers change training.
    Differs {
        /// The first difference.
        difference: Difference,
        /// The hooks that cause it: each of these sets is enough. They are those whose difference shows up to
        /// this step; others that change training only later are not among them.
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
    /// The metrics of validations, where there were any.
    pub metrics: usize,
}

impl Compared {
    pub(super) fn count(&mut self, what: &What, shape: &[usize]) {
        match what {
            What::Parameter { .. } => {
                self.parameters += 1;
                self.values += shape.iter().product::<usize>();
            }
            What::OptimizerState { .. } => self.optimizer_tensors += 1,
            What::Metric { .. } => self.metrics += 1,
            What::Rates { .. } => {}
        }
    }
}

/// Where it is that something is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Before the first step, and after each.
    #[default]
    Step,
    /// At the end of a validation.
    Validation,
    /// At the end of training.
    End,
}

/// Where two runs first differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The step; 0 is before the first.
    pub step: u64,
    /// Where, after this step.
    pub place: Place,
    /// The losses of that step, if they differ.
    pub losses: Option<Losses>,
    /// What else differs: parameters in the module's order, then what optimizers keep. Of a validation, its
    /// metrics.
    pub tensors: Vec<Changed>,
    /// How many steps the run without the observers had and how many the other, where one of them ended before
    /// this step.
    pub ended: Option<[u64; 2]>,
}

impl Difference {
    /// All that is known is the step.
    pub(super) fn unknown(step: u64) -> Difference {
        Difference { step, place: Place::Step, losses: None, tensors: Vec::new(), ended: None }
    }
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
    /// A metric of a validation.
    Metric {
        /// Its name.
        name: String,
    },
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

    /// Whether observers were judged, some were exercised, and they change nothing. Of those in
    /// [`not_exercised`](Judgement::not_exercised) it says nothing.
    #[must_use]
    pub fn is_neutral(&self) -> bool {
        self.finding == Finding::Neutral
    }
}
