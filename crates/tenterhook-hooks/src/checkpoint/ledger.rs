//! Which checkpoints are the best, and which goes when a better one comes.

use serde::{Deserialize, Serialize};
use tenterhook_files::RelPath;

use crate::mode::Mode;

/// The kept checkpoints, the oldest first, with their scores. Paths are relative to the hook's directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Ledger(Vec<Kept>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    path: RelPath,
    /// `None` when nothing is monitored, or when it was not a number.
    #[serde(with = "tenterhook_core::number::option")]
    score: Option<f64>,
    /// It was removed after the checkpoint that the run was resumed from. It still counts, so that the run decides
    /// as it did before, but there is nothing to load.
    /// Found out at every start.
    #[serde(skip)]
    gone: bool,
}

impl Ledger {
    /// Whether a checkpoint with this score would be kept, when so many are (`None` is all).
    pub(super) fn takes(&self, score: f64, keep: Option<usize>, mode: Mode) -> bool {
        let full = keep.is_some_and(|keep| self.0.len() >= keep);
        !full
            || self
                .worst(mode)
                .is_some_and(|worst| self.0[worst].score.is_none_or(|kept| mode.is_better(score, kept)))
    }

    /// Makes room for a new one; those that have to go for it are returned.
    pub(super) fn make_room(&mut self, keep: Option<usize>, mode: Mode) -> Ledger {
        let mut gone = Vec::new();
        while let Some(worst) =
            self.worst(mode).filter(|_| keep.is_some_and(|keep| self.0.len() >= keep.max(1)))
        {
            gone.push(self.0.remove(worst));
        }
        Ledger(gone)
    }

    /// Where they are.
    pub(super) fn paths(&self) -> Vec<RelPath> {
        self.0.iter().map(|kept| kept.path.clone()).collect()
    }

    /// Takes back those that made way for one that was never written: they are there as before.
    pub(super) fn take_back(&mut self, made_way: Ledger) {
        self.0.splice(..0, made_way.0);
    }

    /// Notes a new one.
    pub(super) fn add(&mut self, path: RelPath, score: Option<f64>) {
        self.0.push(Kept { path, score: score.filter(|score| !score.is_nan()), gone: false });
    }

    /// Goes by what is on the disk. What the run itself has removed since is gone; what is missing otherwise is
    /// returned, and forgotten.
    pub(super) fn reconcile(
        &mut self,
        is_there: impl Fn(&RelPath) -> bool,
        was_removed: impl Fn(&RelPath) -> bool,
    ) -> Vec<RelPath> {
        let mut missing = Vec::new();
        self.0.retain_mut(|kept| {
            let there = is_there(&kept.path);
            kept.gone = !there;
            let stays = there || was_removed(&kept.path);
            if !stays {
                missing.push(kept.path.clone());
            }
            stays
        });
        missing
    }

    /// Forgets one that was never written; the newest of that name.
    pub(super) fn forget(&mut self, path: &RelPath) {
        if let Some(at) = self.0.iter().rposition(|kept| kept.path == *path) {
            self.0.remove(at);
        }
    }

    /// The best one, with its score, and of equals the newest. It may be gone: a resumed run decides as it did before.
    pub(super) fn best(&self, mode: Mode) -> Option<(&RelPath, Option<f64>)> {
        Ledger::best_of(self.0.iter(), mode)
    }

    /// The best one that can be loaded.
    pub(super) fn best_there(&self, mode: Mode) -> Option<(&RelPath, Option<f64>)> {
        Ledger::best_of(self.0.iter().filter(|kept| !kept.gone), mode)
    }

    fn best_of<'k>(kept: impl Iterator<Item = &'k Kept>, mode: Mode) -> Option<(&'k RelPath, Option<f64>)> {
        let better = |a: &Kept, b: &Kept| match (a.score, b.score) {
            (Some(a), Some(b)) => !mode.is_better(b, a),
            (Some(_) | None, None) => true,
            (None, Some(_)) => false,
        };
        let best = kept.reduce(|best, other| if better(other, best) { other } else { best });
        best.map(|kept| (&kept.path, kept.score))
    }

    /// The worst one, and of equals the oldest.
    fn worst(&self, mode: Mode) -> Option<usize> {
        let worse = |a: &Kept, b: &Kept| match (a.score, b.score) {
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
        let (mut ledger, mut gone) = (Ledger::default(), Vec::new());
        for score in scores {
            if ledger.takes(*score, keep, mode) {
                gone.extend(ledger.make_room(keep, mode).paths());
                ledger.add(path(&score.to_string()), Some(*score));
            }
        }
        (ledger.0.iter().filter_map(|kept| kept.score).collect(), gone)
    }

    #[test]
    fn the_best_are_kept_and_the_worst_of_them_goes() {
        let (kept, gone) = feed(&[3.0, 1.0, 2.0, 5.0, 0.5], Some(2), Mode::Min);
        assert_eq!(kept, [1.0, 0.5]);
        assert_eq!(gone, [path("3"), path("2")]);
        assert_eq!(feed(&[3.0, 1.0, 4.0], Some(1), Mode::Max).0, [4.0]);
    }

    #[test]
    fn the_best_is_known_and_of_equals_the_newest() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.best(Mode::Min), None);
        for (name, score) in [("none", None), ("a", Some(2.0)), ("b", Some(1.0)), ("c", Some(1.0))] {
            ledger.add(path(name), score);
        }
        assert_eq!(ledger.best(Mode::Min), Some((&path("c"), Some(1.0))));
        assert_eq!(ledger.best(Mode::Max), Some((&path("a"), Some(2.0))));
    }

    #[test]
    fn what_the_run_removed_itself_still_counts_and_what_others_removed_does_not() {
        let mut ledger = Ledger::default();
        for (name, score) in [("there", 3.0), ("removed", 1.0), ("deleted", 0.5)] {
            ledger.add(path(name), Some(score));
        }
        let missing = ledger.reconcile(|kept| *kept == path("there"), |kept| *kept == path("removed"));
        assert_eq!(missing, [path("deleted")]);
        assert_eq!(ledger.best_there(Mode::Min), Some((&path("there"), Some(3.0))), "one that can be loaded");
        assert_eq!(ledger.best(Mode::Min), Some((&path("removed"), Some(1.0))), "as before it was removed");
        assert!(ledger.takes(2.0, Some(2), Mode::Min), "better than the one that is there");
        assert_eq!(ledger.make_room(Some(2), Mode::Min).paths(), [path("there")]);
        assert!(!ledger.takes(2.0, Some(1), Mode::Min), "worse than the one that was removed");
    }

    #[test]
    fn one_that_was_never_written_is_forgotten() {
        let mut ledger = Ledger::default();
        ledger.add(path("a"), Some(1.0));
        ledger.add(path("b"), Some(0.5));
        ledger.forget(&path("b"));
        ledger.forget(&path("unknown"));
        assert_eq!(ledger.best(Mode::Min), Some((&path("a"), Some(1.0))));
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
    fn what_is_not_a_number_is_the_first_to_go() {
        let (kept, gone) = feed(&[f64::NAN, 2.0], Some(1), Mode::Min);
        assert_eq!((kept, gone), (vec![2.0], vec![path("NaN")]));
    }
}
