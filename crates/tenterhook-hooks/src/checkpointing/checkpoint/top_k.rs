//! The k best checkpoints, and which one is removed for a better one.

use serde::{Deserialize, Serialize};
use tenterhook_files::RelPath;

use crate::support::mode::Mode;

/// The kept checkpoints with their scores, oldest first. Paths are relative to the hook's directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TopK(Vec<SavedCheckpoint>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedCheckpoint {
    path: RelPath,
    /// `None` without a monitored metric, or if its value was NaN.
    #[serde(with = "tenterhook_core::number::option")]
    score: Option<f64>,
    /// Whether the run removed it after saving the checkpoint that it resumed from. It is still ranked, so that the
    /// resumed run makes the same decisions, but cannot be loaded. Determined at every start.
    #[serde(skip)]
    missing: bool,
}

impl TopK {
    /// Whether a checkpoint with this score would be among the best `keep` (`None` is all).
    pub(super) fn accepts(&self, score: f64, keep: Option<usize>, mode: Mode) -> bool {
        let full = keep.is_some_and(|keep| self.0.len() >= keep);
        !full
            || self
                .worst(mode)
                .is_some_and(|worst| self.0[worst].score.is_none_or(|kept| mode.is_better(score, kept)))
    }

    /// Removes the worst checkpoints until there is room for one more, and returns them.
    pub(super) fn make_room(&mut self, keep: Option<usize>, mode: Mode) -> TopK {
        let mut removed = Vec::new();
        while let Some(worst) =
            self.worst(mode).filter(|_| keep.is_some_and(|keep| self.0.len() >= keep.max(1)))
        {
            removed.push(self.0.remove(worst));
        }
        TopK(removed)
    }

    pub(super) fn paths(&self) -> Vec<RelPath> {
        self.0.iter().map(|kept| kept.path.clone()).collect()
    }

    /// Puts back checkpoints whose replacement failed.
    pub(super) fn restore(&mut self, replaced: TopK) {
        self.0.splice(..0, replaced.0);
    }

    pub(super) fn add(&mut self, path: RelPath, score: Option<f64>) {
        self.0.push(SavedCheckpoint { path, score: score.filter(|score| !score.is_nan()), missing: false });
    }

    /// Compares with the disk. Checkpoints that the run removed itself are marked as missing; others that are missing are
    /// forgotten and returned.
    pub(super) fn reconcile(
        &mut self,
        is_there: impl Fn(&RelPath) -> bool,
        was_removed: impl Fn(&RelPath) -> bool,
    ) -> Vec<RelPath> {
        let mut missing = Vec::new();
        self.0.retain_mut(|kept| {
            let there = is_there(&kept.path);
            kept.missing = !there;
            let stays = there || was_removed(&kept.path);
            if !stays {
                missing.push(kept.path.clone());
            }
            stays
        });
        missing
    }

    /// Forgets the newest checkpoint of this path: its save failed.
    pub(super) fn forget(&mut self, path: &RelPath) {
        if let Some(at) = self.0.iter().rposition(|kept| kept.path == *path) {
            self.0.remove(at);
        }
    }

    /// The best checkpoint and its score; of equal ones, the newest. It may be missing on the disk, so that a resumed
    /// run makes the same decisions.
    pub(super) fn best(&self, mode: Mode) -> Option<(&RelPath, Option<f64>)> {
        TopK::best_of(self.0.iter(), mode)
    }

    /// The best checkpoint that can be loaded.
    pub(super) fn best_on_disk(&self, mode: Mode) -> Option<(&RelPath, Option<f64>)> {
        TopK::best_of(self.0.iter().filter(|kept| !kept.missing), mode)
    }

    fn best_of<'k>(
        kept: impl Iterator<Item = &'k SavedCheckpoint>,
        mode: Mode,
    ) -> Option<(&'k RelPath, Option<f64>)> {
        let better = |a: &SavedCheckpoint, b: &SavedCheckpoint| match (a.score, b.score) {
            (Some(a), Some(b)) => !mode.is_better(b, a),
            (Some(_) | None, None) => true,
            (None, Some(_)) => false,
        };
        let best = kept.reduce(|best, other| if better(other, best) { other } else { best });
        best.map(|kept| (&kept.path, kept.score))
    }

    /// The worst checkpoint; of equal ones, the oldest.
    fn worst(&self, mode: Mode) -> Option<usize> {
        let worse = |a: &SavedCheckpoint, b: &SavedCheckpoint| match (a.score, b.score) {
            (Some(a), Some(b)) => mode.is_better(b, a),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        (0..self.0.len())
            .reduce(|worst, other| if worse(&self.0[other], &self.0[worst]) { other } else { worst })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> RelPath {
        RelPath::new(name).expect("a name")
    }

    fn feed(scores: &[f64], keep: Option<usize>, mode: Mode) -> (Vec<f64>, Vec<RelPath>) {
        let (mut top_k, mut removed) = (TopK::default(), Vec::new());
        for score in scores {
            if top_k.accepts(*score, keep, mode) {
                removed.extend(top_k.make_room(keep, mode).paths());
                top_k.add(path(&score.to_string()), Some(*score));
            }
        }
        (top_k.0.iter().filter_map(|kept| kept.score).collect(), removed)
    }

    #[test]
    fn the_best_are_kept_and_the_worst_is_removed() {
        let (kept, removed) = feed(&[3.0, 1.0, 2.0, 5.0, 0.5], Some(2), Mode::Min);
        assert_eq!(kept, [1.0, 0.5]);
        assert_eq!(removed, [path("3"), path("2")]);
        assert_eq!(feed(&[3.0, 1.0, 4.0], Some(1), Mode::Max).0, [4.0]);
    }

    #[test]
    fn the_best_of_equal_ones_is_the_newest() {
        let mut top_k = TopK::default();
        assert_eq!(top_k.best(Mode::Min), None);
        for (name, score) in [("none", None), ("a", Some(2.0)), ("b", Some(1.0)), ("c", Some(1.0))] {
            top_k.add(path(name), score);
        }
        assert_eq!(top_k.best(Mode::Min), Some((&path("c"), Some(1.0))));
        assert_eq!(top_k.best(Mode::Max), Some((&path("a"), Some(2.0))));
    }

    #[test]
    fn checkpoints_removed_by_the_run_are_ranked_and_others_are_forgotten() {
        let mut top_k = TopK::default();
        for (name, score) in [("there", 3.0), ("removed", 1.0), ("deleted", 0.5)] {
            top_k.add(path(name), Some(score));
        }
        let missing = top_k.reconcile(|kept| *kept == path("there"), |kept| *kept == path("removed"));
        assert_eq!(missing, [path("deleted")]);
        assert_eq!(
            top_k.best_on_disk(Mode::Min),
            Some((&path("there"), Some(3.0))),
            "one that can be loaded"
        );
        assert_eq!(top_k.best(Mode::Min), Some((&path("removed"), Some(1.0))), "as before it was removed");
        assert!(top_k.accepts(2.0, Some(2), Mode::Min), "better than the one that is there");
        assert_eq!(top_k.make_room(Some(2), Mode::Min).paths(), [path("there")]);
        assert!(!top_k.accepts(2.0, Some(1), Mode::Min), "worse than the one that was removed");
    }

    #[test]
    fn a_failed_save_is_forgotten() {
        let mut top_k = TopK::default();
        top_k.add(path("a"), Some(1.0));
        top_k.add(path("b"), Some(0.5));
        top_k.forget(&path("b"));
        top_k.forget(&path("unknown"));
        assert_eq!(top_k.best(Mode::Min), Some((&path("a"), Some(1.0))));
    }

    #[test]
    fn an_equal_score_is_not_better() {
        assert_eq!(feed(&[1.0, 1.0], Some(1), Mode::Min), (vec![1.0], vec![]));
    }

    #[test]
    fn without_a_limit_all_are_kept() {
        assert_eq!(feed(&[1.0, 2.0, 3.0], None, Mode::Min).0, [1.0, 2.0, 3.0]);
    }

    #[test]
    fn a_nan_is_the_first_to_be_removed() {
        let (kept, removed) = feed(&[f64::NAN, 2.0], Some(1), Mode::Min);
        assert_eq!((kept, removed), (vec![2.0], vec![path("NaN")]));
    }
}
