//! A judgement in words.

use std::fmt;

use super::judgement::{
    Changed, Compared, Difference, Finding, Judgement, Losses, NotExercised, NotJudged, Place, Reason, What,
};

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Parameter { name } => write!(f, "parameter `{name}`"),
            What::OptimizerState { optimizer, name } => write!(f, "`{name}` in the state of {optimizer}"),
            What::Metric { name } => write!(f, "metric `{name}`"),
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

/// What several of its kind are called.
fn kind(changed: &Changed) -> &'static str {
    match changed.what {
        What::Parameter { .. } => "parameter",
        What::OptimizerState { .. } => "tensor",
        What::Rates { .. } => "group",
        What::Metric { .. } => "metric",
    }
}

impl Difference {
    /// Where it is.
    fn place(&self) -> String {
        let step = self.step;
        match self.place {
            Place::Step => format!("step {step}"),
            Place::Validation => format!("the validation after step {step}"),
            Place::End => format!("the end of training after step {step}"),
        }
    }

    /// What differs, a line each, between two runs that are called so.
    fn lines(&self, [one, other]: [&str; 2]) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some([without, with]) = self.ended {
            lines.push(format!("training ended after step {without} {one}, after step {with} {other}"));
        }
        for of in ["parameter", "tensor", "group", "metric"] {
            let mut changed = self.tensors.iter().filter(|changed| kind(changed) == of);
            let Some(first) = changed.next() else { continue };
            let size =
                first.largest.map(|largest| format!(", by {largest:.3e} at the most")).unwrap_or_default();
            let more = match changed.count() {
                0 => String::new(),
                1 => format!("; 1 more {of}"),
                more => format!("; {more} more {of}s"),
            };
            lines.push(format!("{}{size}{more}", first.what));
        }
        if let Some(Losses { without, with }) = self.losses {
            lines.push(format!("the loss is {without} {one}, {with} {other}"));
        }
        lines
    }
}

impl Judgement {
    /// Who was not exercised.
    fn idle(&self) -> String {
        let hooks: Vec<_> = self.not_exercised.iter().map(|idle| format!("`{}`", idle.hook)).collect();
        if hooks.is_empty() { String::new() } else { format!("; not exercised: {}", hooks.join(", ")) }
    }

    fn verdict(&self) -> String {
        let steps = counted(self.steps, "step");
        match &self.finding {
            Finding::Neutral => {
                let (all, idle) = (self.judged.len(), self.not_exercised.len());
                let who = counted(all as u64, "observer");
                let who = if idle > 0 { format!("{} of {who}", all - idle) } else { who };
                let change = if all - idle == 1 { "changes" } else { "change" };
                format!("neutral: {who} {change} nothing in {steps}{}", self.idle())
            }
            Finding::NothingExercised => {
                format!("nothing was proved: no observer was exercised in {steps}{}", self.idle())
            }
            Finding::NothingToJudge => "nothing was compared: there is no observer to judge".to_owned(),
            Finding::NotDeterministic { run, difference } => format!(
                "not deterministic: the run {run} does not do the same twice, first at {}; nothing can be judged",
                difference.place()
            ),
            Finding::Differs { difference, causes } => {
                let all: Vec<_> = causes.iter().map(|cause| in_words(cause)).collect();
                let change = if all.len() > 1 || causes[0].len() > 1 { "change" } else { "changes" };
                format!(
                    "not neutral: {} {change} training, first at {}",
                    all.join("; and "),
                    difference.place()
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
        let differs = match &self.finding {
            Finding::Differs { difference, .. } => difference.lines(["without the observers", "with them"]),
            Finding::NotDeterministic { difference, .. } => {
                difference.lines(["the first time", "the second time"])
            }
            _ => Vec::new(),
        };
        differs.iter().try_for_each(|text| line(f, "differs", text))?;
        if !self.judged.is_empty() {
            line(f, "observers", &format!("`{}`", self.judged.join("`, `")))?;
            let Compared { parameters, values, optimizer_tensors, metrics } = self.compared;
            let parameters = counted(parameters as u64, "parameter");
            let tensors = counted(optimizer_tensors as u64, "tensor");
            let metrics = match metrics {
                0 => String::new(),
                count => format!("; {} of validations", counted(count as u64, "metric")),
            };
            let runs = counted(self.runs as u64, "run");
            line(
                f,
                "compared",
                &format!(
                    "bit for bit, at every step: the loss, {parameters} ({values} values), {tensors} of optimizer state{metrics}; {runs}"
                ),
            )?;
        }
        self.not_judged.iter().try_for_each(|hook| line(f, "not judged", &hook.to_string()))?;
        let not_exercised = |hook: &NotExercised| format!("`{}`: {}", hook.hook, hook.why);
        self.not_exercised.iter().try_for_each(|hook| line(f, "not exercised", &not_exercised(hook)))
    }
}
