//! What a message says: a text with places such as `{run}`, `{error}` or `{val/loss:.4}`.

use tenterhook_core::OptionError;
use tenterhook_core::plan::TRAIN_LOSS;

use super::NotifyOn;
use crate::format::{EXAMPLES, formatted};
use crate::text;

/// Chats show no more than this, and nobody reads as much.
const LONGEST: usize = 4000;

/// What stands for a value that is not there.
const NOTHING: &str = "n/a";

/// The mark of a message that a killed process may have sent.
const AGAIN: &str = "(may have been sent before)";

/// What can be put in besides metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Run,
    Step,
    Epoch,
    EpochLabel,
    Best,
    BestPath,
    Outcome,
    Reason,
    Error,
    Path,
    Again,
    Hook,
}

const WORDS: [(&str, Word); 12] = [
    ("run", Word::Run),
    ("step", Word::Step),
    ("epoch", Word::Epoch),
    ("epoch_label", Word::EpochLabel),
    ("best", Word::Best),
    ("best_path", Word::BestPath),
    ("outcome", Word::Outcome),
    ("reason", Word::Reason),
    ("error", Word::Error),
    ("path", Word::Path),
    ("again", Word::Again),
    ("hook", Word::Hook),
];

impl NotifyOn {
    /// What is known when it happens.
    fn knows(self, word: Word) -> bool {
        match word {
            Word::Run | Word::Step | Word::Epoch | Word::EpochLabel | Word::Best | Word::BestPath => true,
            Word::Outcome => matches!(self, NotifyOn::TrainingEnd | NotifyOn::EarlyStop),
            Word::Reason => {
                matches!(self, NotifyOn::TrainingEnd | NotifyOn::EarlyStop | NotifyOn::HookDisabled)
            }
            Word::Error => self == NotifyOn::Exception,
            Word::Path | Word::Again => matches!(self, NotifyOn::BestModel | NotifyOn::Checkpoint),
            Word::Hook => matches!(self, NotifyOn::HookDisabled | NotifyOn::EarlyStop),
        }
    }
}

/// What is put in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    pub(super) run: String,
    pub(super) step: u64,
    pub(super) epoch: u64,
    pub(super) epoch_label: String,
    pub(super) best: Option<f64>,
    pub(super) best_path: Option<String>,
    pub(super) outcome: Option<&'static str>,
    pub(super) reason: Option<String>,
    pub(super) error: Option<String>,
    pub(super) path: Option<String>,
    /// The message may have been sent before.
    pub(super) again: bool,
    pub(super) hook: Option<String>,
    /// The metrics that the template names, in its order.
    pub(super) metrics: Vec<Option<f64>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Word {
        word: Word,
        spec: String,
    },
    /// The metric of this number.
    Metric {
        at: usize,
        spec: String,
    },
}

/// A text with places, of which all can be filled.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
    metrics: Vec<String>,
}

impl Template {
    /// Reads a template, or says what is wrong with it.
    pub(super) fn parse(on: NotifyOn, text: &str) -> Result<Template, OptionError> {
        let mut template = Template::default();
        let read = template.read(on, text);
        read.map_err(|problem| {
            OptionError::new(
                "templates",
                format!("`templates` has for {} \"{text}\", which {problem}", on.name()),
            )
        })?;
        Ok(template)
    }

    fn read(&mut self, on: NotifyOn, text: &str) -> Result<(), String> {
        let (mut rest, mut plain) = (text, String::new());
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let (brace, inside) = rest[at..].split_at(1);
            if let Some(behind) = inside.strip_prefix(brace) {
                plain.push_str(brace);
                rest = behind;
                continue;
            }
            if brace == "}" {
                return Err("has a `}` without its `{`; a brace itself is written twice".into());
            }
            let Some((place, behind)) = inside.split_once('}') else {
                return Err("has a `{` without its `}`; a brace itself is written twice".into());
            };
            let (name, spec) = place.split_once(':').unwrap_or((place, ""));
            let piece = self.place(on, name, spec)?;
            self.pieces.extend([Piece::Text(std::mem::take(&mut plain)), piece]);
            rest = behind;
        }
        plain.push_str(rest);
        self.pieces.push(Piece::Text(plain));
        Ok(())
    }

    fn place(&mut self, on: NotifyOn, name: &str, spec: &str) -> Result<Piece, String> {
        if name.is_empty() {
            return Err("has a `{}` without a name".into());
        }
        let known = WORDS.iter().filter(|(_, word)| on.knows(*word));
        let known: Vec<_> = known.map(|(name, _)| format!("{{{name}}}")).collect();
        let known = format!("there are {} and metrics such as {{val/loss:.4}}", known.join(", "));
        let number = |spec: &str| match formatted(0.0, spec) {
            Some(_) => Ok(spec.to_owned()),
            None => Err(format!("has \"{spec}\", and that is no format; write for example {EXAMPLES}")),
        };
        if let Some((_, word)) = WORDS.iter().find(|(known, _)| *known == name) {
            if !on.knows(*word) {
                return Err(format!("has {{{name}}}, which is not there then; {known}"));
            }
            if !matches!(word, Word::Step | Word::Epoch | Word::Best) && !spec.is_empty() {
                return Err(format!(
                    "has {{{name}:{spec}}}, and only numbers have a format; write {{{name}}}"
                ));
            }
            return Ok(Piece::Word { word: *word, spec: number(spec)? });
        }
        // What is called almost like one of our own names is no metric, but a slip of the pen.
        if let Some((meant, _)) = WORDS.iter().find(|(known, _)| strsim::osa_distance(known, name) == 1) {
            return Err(format!("has {{{name}}}, which is nothing: did you mean {{{meant}}}? {known}"));
        }
        let metric = if name == "loss" { TRAIN_LOSS } else { name };
        let at = self.metrics.iter().position(|known| known == metric).unwrap_or_else(|| {
            self.metrics.push(metric.to_owned());
            self.metrics.len() - 1
        });
        Ok(Piece::Metric { at, spec: number(spec)? })
    }

    /// The metrics that it names.
    pub(super) fn metrics(&self) -> &[String] {
        &self.metrics
    }

    /// Whether it names the best checkpoint or its score.
    pub(super) fn names_best(&self) -> bool {
        let is_best = |piece: &Piece| matches!(piece, Piece::Word { word: Word::Best | Word::BestPath, .. });
        self.pieces.iter().any(is_best)
    }

    /// The message. What is put in cannot be taken for mark-up: `Vec<f32>` is no link.
    pub(super) fn fill(&self, facts: &Facts) -> String {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Word { word, spec } => filled.push_str(&escaped(&facts.word(*word, spec))),
                Piece::Metric { at, spec } => {
                    let value = facts.metrics.get(*at).copied().flatten();
                    filled.push_str(&value.map_or_else(|| NOTHING.to_owned(), |value| number(value, spec)));
                }
            }
        }
        // A mark that is empty leaves a blank behind.
        filled.truncate(filled.trim_end().len());
        if filled.chars().count() > LONGEST {
            filled = filled.chars().take(LONGEST - 1).chain(['…']).collect();
        }
        filled
    }
}

impl Facts {
    fn word(&self, word: Word, spec: &str) -> String {
        let or_nothing = |text: &Option<String>| text.clone().unwrap_or_else(|| NOTHING.to_owned());
        match word {
            Word::Run => self.run.clone(),
            Word::Step => number(self.step as f64, spec),
            Word::Epoch => number(self.epoch as f64, spec),
            Word::EpochLabel => self.epoch_label.clone(),
            Word::Best => self.best.map_or_else(|| NOTHING.to_owned(), |best| number(best, spec)),
            Word::BestPath => or_nothing(&self.best_path),
            Word::Outcome => self.outcome.unwrap_or(NOTHING).to_owned(),
            Word::Reason => or_nothing(&self.reason),
            Word::Error => or_nothing(&self.error),
            Word::Path => or_nothing(&self.path),
            Word::Again => if self.again { AGAIN } else { "" }.to_owned(),
            Word::Hook => or_nothing(&self.hook),
        }
    }
}

fn number(value: f64, spec: &str) -> String {
    let written = Some(spec).filter(|spec| !spec.is_empty()).and_then(|spec| formatted(value, spec));
    written.unwrap_or_else(|| if value.fract() == 0.0 { value.to_string() } else { text::six(value) })
}

/// As Slack wants it, and those that are compatible.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            run: "r1".into(),
            step: 1_234_567,
            epoch: 3,
            outcome: Some("stopped"),
            reason: Some("val/loss < 0.1 & falling".into()),
            hook: Some("early_stopping".into()),
            ..Facts::default()
        }
    }

    fn filled(text: &str, metrics: &[Option<f64>]) -> String {
        let template = Template::parse(NotifyOn::EarlyStop, text).expect("it can be filled");
        template.fill(&Facts { metrics: metrics.to_vec(), ..facts() })
    }

    #[test]
    fn a_template_is_filled_with_what_is_known() {
        assert_eq!(
            filled("*{run}* {outcome} at {step} (epoch {epoch:03d}) by {hook}: {reason}", &[]),
            "*r1* stopped at 1234567 (epoch 003) by early_stopping: val/loss &lt; 0.1 &amp; falling"
        );
        assert_eq!(filled("<!here> {{run}} }}{{", &[]), "<!here> {run} }{");
        let (loss, none) = (Some(0.123_456_789), None);
        assert_eq!(
            filled("{val/loss} {val/loss:.2f} {acc:.1%} {x}", &[loss, none, Some(2.0)]),
            "0.123457 0.12 n/a 2"
        );
        assert_eq!(filled("{x:.2f}", &[Some(f64::NAN)]), "nan");
    }

    #[test]
    fn the_metrics_of_a_template_are_those_that_it_names() {
        let template =
            Template::parse(NotifyOn::TrainingEnd, "{val/loss} {loss} {val/loss:.2f} {run}").expect("fine");
        assert_eq!(template.metrics(), ["val/loss", TRAIN_LOSS]);
    }

    #[test]
    fn a_message_that_nobody_would_read_is_cut() {
        let long = Facts { run: "ä".repeat(9000), ..facts() };
        let text = Template::parse(NotifyOn::Exception, "{run}").expect("fine").fill(&long);
        assert_eq!((text.chars().count(), text.ends_with("ä…")), (LONGEST, true));
    }

    #[test]
    fn what_cannot_be_filled_is_refused_with_what_there_is() {
        for (on, text, hint) in [
            (
                NotifyOn::TrainingEnd,
                "{path}",
                "has {path}, which is not there then; there are {run}, {step}, {epoch}, {epoch_label}, {best}, {best_path}, {outcome}, {reason} and metrics",
            ),
            (NotifyOn::Exception, "{outcom}", "did you mean {outcome}?"),
            (
                NotifyOn::Checkpoint,
                "{setp}",
                "did you mean {step}? there are {run}, {step}, {epoch}, {epoch_label}, {best}, {best_path}, {path}, {again} and",
            ),
            (NotifyOn::Checkpoint, "{step", "`{` without its `}`"),
            (NotifyOn::Checkpoint, "step}", "`}` without its `{`"),
            (NotifyOn::Checkpoint, "{}", "without a name"),
            (NotifyOn::Checkpoint, "{run:.2f}", "only numbers have a format; write {run}"),
            (NotifyOn::Checkpoint, "{val/loss:zz}", "\"zz\", and that is no format; write for example `.2f`"),
        ] {
            let error = Template::parse(on, text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("`templates` has for {} \"{text}\"", on.name())), "{error}");
            assert!(error.contains(hint), "{error}");
        }
    }
}
