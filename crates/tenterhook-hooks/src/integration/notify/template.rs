//! Templates of messages, with placeholders such as `{run}`, `{error}` or `{val/loss:.4}`.

use tenterhook_core::OptionError;
use tenterhook_core::plan::TRAIN_LOSS;

use super::NotifyOn;
use crate::support::number_format::{EXAMPLES, formatted};
use crate::support::text;

/// The maximum length of a message.
const MAX_CHARS: usize = 4000;

/// A missing value.
const MISSING: &str = "n/a";

/// Marks a message that may have been sent before a kill.
const REDELIVERED: &str = "(may have been sent before)";

/// The placeholders besides metrics.
const FIELDS: [&str; 12] = [
    "run",
    "step",
    "epoch",
    "epoch_label",
    "best",
    "best_path",
    "outcome",
    "reason",
    "error",
    "path",
    "redelivered",
    "hook",
];

impl NotifyOn {
    /// Whether messages of this kind have this field.
    fn has(self, field: &str) -> bool {
        use NotifyOn::{BestModel, Checkpoint, EarlyStop, Exception, HookDisabled, TrainingEnd};
        match field {
            "outcome" => matches!(self, TrainingEnd | EarlyStop),
            "reason" => matches!(self, TrainingEnd | EarlyStop | HookDisabled),
            "error" => self == Exception,
            "path" | "redelivered" => matches!(self, BestModel | Checkpoint),
            "hook" => matches!(self, HookDisabled | EarlyStop),
            _ => true,
        }
    }
}

/// The values of the placeholders.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Values {
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
    /// Whether the message may have been sent before.
    pub(super) redelivered: bool,
    pub(super) hook: Option<String>,
    /// The metrics that the template names, in its order.
    pub(super) metrics: Vec<Option<f64>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Field {
        name: &'static str,
        spec: String,
    },
    /// A metric, by its index in `Template::metrics`.
    Metric {
        at: usize,
        spec: String,
    },
}

/// A parsed template.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
    metrics: Vec<String>,
}

impl Template {
    /// Parses a template for this kind of message.
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
            let piece = self.placeholder(on, name, spec)?;
            self.pieces.extend([Piece::Text(std::mem::take(&mut plain)), piece]);
            rest = behind;
        }
        plain.push_str(rest);
        self.pieces.push(Piece::Text(plain));
        Ok(())
    }

    fn placeholder(&mut self, on: NotifyOn, name: &str, spec: &str) -> Result<Piece, String> {
        if name.is_empty() {
            return Err("has a `{}` without a name".into());
        }
        let known = FIELDS.iter().filter(|field| on.has(field));
        let known: Vec<_> = known.map(|field| format!("{{{field}}}")).collect();
        let known = format!("there are {} and metrics such as {{val/loss:.4}}", known.join(", "));
        let number = |spec: &str| match formatted(0.0, spec) {
            Some(_) => Ok(spec.to_owned()),
            None => {
                Err(format!("has \"{spec}\", which is not a number format; for example, write {EXAMPLES}"))
            }
        };
        if let Some(field) = FIELDS.into_iter().find(|field| *field == name) {
            if !on.has(field) {
                return Err(format!("has {{{name}}}, which these messages do not have; {known}"));
            }
            if !matches!(field, "step" | "epoch" | "best") && !spec.is_empty() {
                return Err(format!(
                    "has {{{name}:{spec}}}, and only numbers have a format; write {{{name}}}"
                ));
            }
            return Ok(Piece::Field { name: field, spec: number(spec)? });
        }
        // A name one letter away from a placeholder is a typo, not a metric.
        if let Some(meant) = FIELDS.iter().find(|field| strsim::osa_distance(field, name) == 1) {
            return Err(format!("has {{{name}}}, which does not exist: did you mean {{{meant}}}? {known}"));
        }
        let metric = if name == "loss" { TRAIN_LOSS } else { name };
        let at = self.metrics.iter().position(|known| known == metric).unwrap_or_else(|| {
            self.metrics.push(metric.to_owned());
            self.metrics.len() - 1
        });
        Ok(Piece::Metric { at, spec: number(spec)? })
    }

    /// The metrics that the template names.
    pub(super) fn metrics(&self) -> &[String] {
        &self.metrics
    }

    /// Whether the template names the best checkpoint or its score.
    pub(super) fn names_best(&self) -> bool {
        let is_best = |piece: &Piece| matches!(piece, Piece::Field { name: "best" | "best_path", .. });
        self.pieces.iter().any(is_best)
    }

    /// Fills the template. Values are escaped, so that `Vec<f32>` is not parsed as a link.
    pub(super) fn fill(&self, values: &Values) -> String {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Field { name, spec } => filled.push_str(&escaped(&values.field(name, spec))),
                Piece::Metric { at, spec } => {
                    let value = values.metrics.get(*at).copied().flatten();
                    filled.push_str(&value.map_or_else(|| MISSING.to_owned(), |value| number(value, spec)));
                }
            }
        }
        // An empty `{redelivered}` leaves a space at the end.
        filled.truncate(filled.trim_end().len());
        if filled.chars().count() > MAX_CHARS {
            filled = filled.chars().take(MAX_CHARS - 1).chain(['…']).collect();
        }
        filled
    }
}

impl Values {
    /// The text of a field; numbers are formatted.
    fn field(&self, field: &str, spec: &str) -> String {
        let text = match field {
            "run" => Some(self.run.clone()),
            "step" => Some(number(self.step as f64, spec)),
            "epoch" => Some(number(self.epoch as f64, spec)),
            "epoch_label" => Some(self.epoch_label.clone()),
            "best" => self.best.map(|best| number(best, spec)),
            "best_path" => self.best_path.clone(),
            "outcome" => self.outcome.map(str::to_owned),
            "reason" => self.reason.clone(),
            "error" => self.error.clone(),
            "path" => self.path.clone(),
            "redelivered" => Some(if self.redelivered { REDELIVERED } else { "" }.to_owned()),
            _ => self.hook.clone(),
        };
        text.unwrap_or_else(|| MISSING.to_owned())
    }
}

fn number(value: f64, spec: &str) -> String {
    let written = Some(spec).filter(|spec| !spec.is_empty()).and_then(|spec| formatted(value, spec));
    written.unwrap_or_else(|| if value.fract() == 0.0 { value.to_string() } else { text::significant(value) })
}

/// Escapes the control characters of Slack messages.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        Values {
            run: "r1".into(),
            step: 1_234_567,
            epoch: 3,
            outcome: Some("stopped"),
            reason: Some("val/loss < 0.1 & falling".into()),
            hook: Some("early_stopping".into()),
            ..Values::default()
        }
    }

    fn filled(text: &str, metrics: &[Option<f64>]) -> String {
        let template = Template::parse(NotifyOn::EarlyStop, text).expect("it can be filled");
        template.fill(&Values { metrics: metrics.to_vec(), ..values() })
    }

    #[test]
    fn a_template_is_filled() {
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
    fn a_long_message_is_cut() {
        let long = Values { run: "ä".repeat(9000), ..values() };
        let text = Template::parse(NotifyOn::Exception, "{run}").expect("fine").fill(&long);
        assert_eq!((text.chars().count(), text.ends_with("ä…")), (MAX_CHARS, true));
    }

    #[test]
    fn invalid_placeholders_are_refused_with_the_valid_ones() {
        for (on, text, hint) in [
            (
                NotifyOn::TrainingEnd,
                "{path}",
                "has {path}, which these messages do not have; there are {run}, {step}, {epoch}, {epoch_label}, {best}, {best_path}, {outcome}, {reason} and metrics",
            ),
            (NotifyOn::Exception, "{outcom}", "did you mean {outcome}?"),
            (
                NotifyOn::Checkpoint,
                "{setp}",
                "did you mean {step}? there are {run}, {step}, {epoch}, {epoch_label}, {best}, {best_path}, {path}, {redelivered} and",
            ),
            (NotifyOn::Checkpoint, "{step", "`{` without its `}`"),
            (NotifyOn::Checkpoint, "step}", "`}` without its `{`"),
            (NotifyOn::Checkpoint, "{}", "without a name"),
            (NotifyOn::Checkpoint, "{run:.2f}", "only numbers have a format; write {run}"),
            (
                NotifyOn::Checkpoint,
                "{val/loss:zz}",
                "\"zz\", which is not a number format; for example, write `.2f`",
            ),
        ] {
            let error = Template::parse(on, text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("`templates` has for {} \"{text}\"", on.name())), "{error}");
            assert!(error.contains(hint), "{error}");
        }
    }
}
