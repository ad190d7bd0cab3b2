//! `--init-from`: initial weights for fine-tuning.

use std::fmt::Display;
use std::path::PathBuf;

use serde_json::{Value, json};
use tenterhook::module::LoadReport;
use tenterhook::task::Program;

use super::super::print_stderr;
use super::super::weights::Weights;
use crate::error::CommandError;

/// Maximum number of names per line.
const MAX_NAMES: usize = 10;

/// The result of loading initial weights.
pub(super) struct Initialized {
    path: PathBuf,
    report: LoadReport,
}

impl Initialized {
    /// Loads the weights that match by name and shape. It is an error if none match.
    pub(super) fn load(
        program: &mut dyn Program,
        from: &Weights,
        quiet: bool,
    ) -> Result<Initialized, CommandError> {
        let path = from.path.clone();
        let error_at = |what: &dyn Display| CommandError::new(what).at("--init-from");
        let report = program.load_matching(&path).map_err(|error| error_at(&error))?;
        let initialized = Initialized { path, report };
        let lines = initialized.to_text();
        if initialized.report.loaded.is_empty() {
            return Err(error_at(&format_args!("no parameter matches; {}", lines.join("\n"))));
        }
        if !quiet {
            lines.iter().for_each(print_stderr);
        }
        Ok(initialized)
    }

    fn to_text(&self) -> Vec<String> {
        let LoadReport { loaded, missing, unexpected, mismatched, .. } = &self.report;
        let all = loaded.len() + missing.len() + mismatched.len();
        let mut lines =
            vec![format!("loaded {} of {all} parameters from {}", loaded.len(), self.path.display())];
        let kinds = [
            ("not in the file, initialized as usual", missing),
            ("of another shape, initialized as usual", mismatched),
            ("in the file, but not in the model", unexpected),
        ];
        for (what, names) in kinds.into_iter().filter(|(_, names)| !names.is_empty()) {
            let more = names.len().saturating_sub(MAX_NAMES);
            let mut listed: Vec<_> = names.iter().take(MAX_NAMES).cloned().collect();
            listed.extend((more > 0).then(|| format!("and {more} more")));
            lines.push(format!("  {} {what}: {}", names.len(), listed.join(", ")));
        }
        lines
    }

    pub(super) fn to_json(&self) -> Value {
        let LoadReport { loaded, missing, unexpected, mismatched, .. } = &self.report;
        json!({
            "path": self.path,
            "loaded": loaded,
            "missing": missing,
            "unexpected": unexpected,
            "mismatched": mismatched,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_counts_all_parameters_and_names_the_first_of_each_kind() {
        let names = |count: usize| (0..count).map(|index| format!("p{index}")).collect::<Vec<_>>();
        let mut report = LoadReport::default();
        (report.loaded, report.missing) = (names(2), names(11));
        report.mismatched = vec!["`head` has the shape [3] instead of [5]".into()];
        let initialized = Initialized { path: "a/b".into(), report };
        let lines = initialized.to_text();
        assert_eq!(lines[0], "loaded 2 of 14 parameters from a/b");
        assert!(
            lines[1].starts_with("  11 not in the file") && lines[1].ends_with("p9, and 1 more"),
            "{}",
            lines[1]
        );
        assert!(lines[2].ends_with("as usual: `head` has the shape [3] instead of [5]"), "{}", lines[2]);
        assert_eq!(lines.len(), 3);
    }
}
