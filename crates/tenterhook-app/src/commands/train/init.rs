//! `--init-from`: weights to begin with, as far as they fit.

use std::fmt::Display;
use std::path::PathBuf;

use serde_json::{Value, json};
use tenterhook::module::LoadReport;
use tenterhook::task::Program;

use super::super::tell;
use crate::commands::weights::Weights;
use crate::error::CommandError;

/// So many names are listed of a kind.
const LISTED: usize = 10;

/// What became of the weights that a training was to begin with.
pub(super) struct Initialized {
    path: PathBuf,
    report: LoadReport,
}

impl Initialized {
    /// Gives a program those of the weights that fit, as they were evaluated. Where none does, it is a mistake.
    pub(super) fn load(
        program: &mut dyn Program,
        from: &Weights,
        quiet: bool,
    ) -> Result<Initialized, CommandError> {
        let path = from.path.clone();
        let wrong = |what: &dyn Display| CommandError::new(what).at("--init-from");
        let report = program.load_matching(&path).map_err(|error| wrong(&error))?;
        let initialized = Initialized { path, report };
        let lines = initialized.for_people();
        if initialized.report.loaded.is_empty() {
            return Err(wrong(&format_args!("nothing fits; {}", lines.join("\n"))));
        }
        if !quiet {
            lines.iter().for_each(tell);
        }
        Ok(initialized)
    }

    fn for_people(&self) -> Vec<String> {
        let LoadReport { loaded, missing, unexpected, unfit, .. } = &self.report;
        let all = loaded.len() + missing.len() + unfit.len();
        let mut lines =
            vec![format!("loaded {} of {all} parameters from {}", loaded.len(), self.path.display())];
        let kinds = [
            ("not in there, so they begin as they are", missing),
            ("of another shape, so they begin as they are", unfit),
            ("in there, and not in the model", unexpected),
        ];
        for (what, names) in kinds.into_iter().filter(|(_, names)| !names.is_empty()) {
            let more = names.len().saturating_sub(LISTED);
            let mut listed: Vec<_> = names.iter().take(LISTED).cloned().collect();
            listed.extend((more > 0).then(|| format!("and {more} more")));
            lines.push(format!("  {} {what}: {}", names.len(), listed.join(", ")));
        }
        lines
    }

    pub(super) fn for_programs(&self) -> Value {
        let LoadReport { loaded, missing, unexpected, unfit, .. } = &self.report;
        json!({
            "path": self.path,
            "loaded": loaded,
            "missing": missing,
            "unexpected": unexpected,
            "unfit": unfit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_counts_everything_and_names_the_first_of_each_kind() {
        let names = |count: usize| (0..count).map(|index| format!("p{index}")).collect::<Vec<_>>();
        let mut report = LoadReport::default();
        (report.loaded, report.missing) = (names(2), names(11));
        report.unfit = vec!["`head` has the shape [3], the model's [5]".into()];
        let initialized = Initialized { path: "a/b".into(), report };
        let lines = initialized.for_people();
        assert_eq!(lines[0], "loaded 2 of 14 parameters from a/b");
        assert!(
            lines[1].starts_with("  11 not in there") && lines[1].ends_with("p9, and 1 more"),
            "{}",
            lines[1]
        );
        assert!(lines[2].ends_with("as they are: `head` has the shape [3], the model's [5]"), "{}", lines[2]);
        assert_eq!(lines.len(), 3);
    }
}
