//! How far a file was written that a worker writes, as a checkpoint can know it.

use serde::{Deserialize, Serialize};
use tenterhook_files::RelPath;

/// What had been handed to the worker when the checkpoint was taken. Where the worker itself was by then, nobody
/// knew: it may have lagged behind, and has written on since.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bookmark {
    pub(crate) path: RelPath,
    /// How many entries stood in the file before; `None` where that was not known yet.
    pub(crate) before: Option<u64>,
    /// How many were handed over.
    pub(crate) sent: u64,
    /// The time of the last of them.
    pub(crate) time: f64,
}

/// What stays of a file that is opened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Keep {
    /// Nothing: the run begins anew, and what is there is of its first attempt.
    Nothing,
    /// Everything: what is there may be somebody else's.
    All,
    /// What stood there before, and so many entries that were sent, the last of them at this time.
    Until { before: u64, sent: u64, time: f64 },
}

impl Keep {
    /// What a run keeps that goes on from here.
    pub(crate) fn until(mark: &Bookmark) -> Keep {
        let Bookmark { sent, time, .. } = *mark;
        mark.before.map_or(Keep::All, |before| Keep::Until { before, sent, time })
    }

    /// How many of the entries of a file stay, by their times in order.
    ///
    /// The number alone would do if everything that was sent had been written. Where a full queue dropped some, as
    /// many came after the checkpoint and would stay; they are later than what was sent last.
    pub(crate) fn count(&self, times: impl Iterator<Item = f64>) -> u64 {
        let (before, sent, until) = match *self {
            Keep::Nothing => return 0,
            Keep::All => return times.map(|_| 1).sum(),
            Keep::Until { before, sent, time } => (before, sent, time),
        };
        let entries = (1..=before.saturating_add(sent)).zip(times);
        // The last that is no later, and not all before the first that is: clocks are set back, too.
        let stays = |(number, time): &(u64, f64)| *number <= before || *time <= until;
        entries.filter(stays).last().map_or(0, |(number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(keep: &Keep, times: &[f64]) -> u64 {
        keep.count(times.iter().copied())
    }

    #[test]
    fn what_was_sent_before_the_checkpoint_stays_and_nothing_else() {
        let until = Keep::Until { before: 0, sent: 3, time: 2.0 };
        assert_eq!(kept(&until, &[1.0, 2.0, 2.0, 2.0, 3.0]), 3, "by number, where times are the same");
        assert_eq!(kept(&until, &[1.0, 2.0, 3.0, 4.0]), 2, "one had been dropped");
        assert_eq!(kept(&until, &[9.0, 1.5, 2.0, 3.0]), 3, "the clock was set back");
        assert_eq!(kept(&until, &[1.0]), 1, "the worker had not come further");
        assert_eq!(kept(&until, &[]), 0);
        assert_eq!(kept(&Keep::Until { before: 0, sent: 0, time: 0.0 }, &[0.0]), 0);
        let behind = Keep::Until { before: 2, sent: 1, time: 1.0 };
        assert_eq!(kept(&behind, &[7.0, 8.0, 1.0, 2.0]), 3, "what stood there before has other times");
        assert_eq!(kept(&behind, &[7.0, 8.0, 2.0]), 2, "and stays, whatever they are");
        assert_eq!(kept(&Keep::All, &[3.0, 1.0]), 2);
        assert_eq!(kept(&Keep::Nothing, &[3.0, 1.0]), 0);
    }

    #[test]
    fn where_it_is_not_known_how_much_was_there_before_everything_stays() {
        let mark = |before| Bookmark { path: RelPath::new("a").expect("a name"), before, sent: 3, time: 1.0 };
        assert_eq!(Keep::until(&mark(None)), Keep::All);
        assert_eq!(Keep::until(&mark(Some(7))), Keep::Until { before: 7, sent: 3, time: 1.0 });
    }
}
