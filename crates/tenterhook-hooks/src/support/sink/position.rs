//! The position of a sink's file in a checkpoint, and the plan to continue the file there.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tenterhook_files::RelPath;

/// The amount of data sent to the worker before a checkpoint. The worker may have written less by then, and more since.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SinkPosition {
    pub(crate) path: RelPath,
    /// Number of records in the file before this run wrote to it.
    pub(crate) before: u64,
    /// Number of lines of `metrics.jsonl` that were sent.
    pub(crate) lines: u64,
    /// The time of the first of these lines.
    pub(crate) first: f64,
    /// Number of entries sent that no other file holds, such as images.
    pub(crate) others: u64,
    /// The time of the last record that was sent, by the file's clock.
    pub(crate) time: f64,
}

impl SinkPosition {
    /// The position before any data was sent.
    pub(crate) fn new(path: RelPath, before: u64) -> SinkPosition {
        SinkPosition { path, before, lines: 0, first: 0.0, others: 0, time: 0.0 }
    }
}

/// A record of the continued file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A record of the file, by its index.
    Found(usize),
    /// A record that is restored from a line of the run, by its index among the lines that were sent.
    Restored(usize),
}

/// The records of the continued file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestorePlan {
    pub(crate) pieces: Vec<Piece>,
    /// Number of entries found that no other file holds.
    pub(crate) others: u64,
    /// Number of missing records that cannot be restored.
    pub(crate) lost: u64,
}

impl RestorePlan {
    /// Compares the keys and times of a file's records with the keys of all lines that were sent before `position`.
    pub(crate) fn new(found: &[(u64, f64)], lines: &[u64], position: &SinkPosition) -> RestorePlan {
        let mut numbers: HashMap<u64, Vec<usize>> = HashMap::new();
        for (number, key) in lines.iter().enumerate() {
            numbers.entry(*key).or_default().push(number);
        }
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let before = count(position.before).min(found.len());
        let sent = count(position.lines).saturating_add(count(position.others));
        // Ends at the last record with a time up to the checkpoint's: the clock may have been set back.
        let until = found
            .iter()
            .take(before.saturating_add(sent))
            .rposition(|(_, time)| *time <= position.time)
            .map_or(0, |last| last + 1);
        let (mut pieces, mut next, mut others) = ((0..before).map(Piece::Found).collect::<Vec<_>>(), 0, 0);
        for (number, (key, _)) in found.iter().enumerate().skip(before) {
            let line = numbers.get(key).and_then(|at| at.get(at.partition_point(|line| *line < next)));
            if let Some(line) = line {
                pieces.extend((next..*line).map(Piece::Restored));
                pieces.push(Piece::Found(number));
                next = line + 1;
            } else if others < position.others && number < until {
                pieces.push(Piece::Found(number));
                others += 1;
            }
        }
        pieces.extend((next..lines.len()).map(Piece::Restored));
        let lost = (position.before - before as u64) + (position.others - others);
        RestorePlan { pieces, others, lost }
    }

    /// Number of restored records.
    pub(crate) fn restored(&self) -> usize {
        self.pieces.iter().filter(|piece| matches!(piece, Piece::Restored(_))).count()
    }

    /// Whether the file already holds exactly these records.
    pub(crate) fn changes_nothing(&self, found: usize) -> bool {
        self.pieces.iter().copied().eq((0..found).map(Piece::Found))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn position(before: u64, lines: u64, others: u64, time: f64) -> SinkPosition {
        let path = RelPath::new("a").expect("a name");
        SinkPosition { before, lines, others, time, ..SinkPosition::new(path, before) }
    }

    /// The number of records kept in a file with records at these times, if none of them is a line.
    fn kept(position: &SinkPosition, times: &[f64]) -> usize {
        let found: Vec<_> = times.iter().map(|time| (0, *time)).collect();
        let plan = RestorePlan::new(&found, &[], position);
        assert_eq!(plan.restored(), 0);
        plan.pieces.len()
    }

    #[test]
    fn only_records_sent_before_the_checkpoint_are_kept() {
        let until = position(0, 0, 3, 2.0);
        assert_eq!(kept(&until, &[1.0, 2.0, 2.0, 2.0, 3.0]), 3, "equal times: by number");
        assert_eq!(kept(&until, &[1.0, 2.0, 3.0, 4.0]), 2, "one had been dropped");
        assert_eq!(kept(&until, &[9.0, 1.5, 2.0, 3.0]), 3, "the clock was set back");
        assert_eq!(kept(&until, &[1.0]), 1, "the worker lagged");
        assert_eq!(kept(&until, &[]), 0);
        assert_eq!(kept(&position(0, 0, 0, 0.0), &[0.0]), 0);
        let behind = position(2, 0, 1, 1.0);
        assert_eq!(kept(&behind, &[7.0, 8.0, 1.0, 2.0]), 3, "earlier records have other times");
        assert_eq!(kept(&behind, &[7.0, 8.0, 2.0]), 2, "earlier records are always kept");
    }

    #[test]
    fn records_that_are_missing_and_cannot_be_restored_are_counted() {
        let lost = |found: &[(u64, f64)], lines: &[u64], position: &SinkPosition| {
            RestorePlan::new(found, lines, position).lost
        };
        assert_eq!(lost(&[], &[], &position(2, 0, 3, 1.0)), 5);
        assert_eq!(lost(&[(9, 0.0), (1, 0.0)], &[1, 2], &position(0, 2, 2, 1.0)), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever the worker wrote or dropped, the continued file holds each line before the checkpoint once and in
        /// order, and no later line.
        #[test]
        fn the_continued_file_holds_every_line_before_the_checkpoint(
            entries in proptest::collection::vec((any::<bool>(), any::<bool>()), 0..30),
            checkpoint in 0_usize..31,
            killed_at in 0_usize..31,
        ) {
            let checkpoint = checkpoint.min(entries.len());
            // Each entry is a line or not, and was written or dropped. Its number serves as its key and its time.
            let key = |number: usize, is_line: bool| number as u64 + if is_line { 0 } else { 1000 };
            let sent = || entries.iter().enumerate().take(checkpoint);
            let lines: Vec<_> = sent().filter(|(_, (is_line, _))| *is_line).map(|(n, _)| key(n, true)).collect();
            let found: Vec<_> = entries.iter().enumerate().take(killed_at).filter(|(_, (_, written))| *written)
                .map(|(n, (is_line, _))| (key(n, *is_line), n as f64)).collect();
            let others = checkpoint - lines.len();
            let at = position(0, lines.len() as u64, others as u64, checkpoint as f64 - 1.0);
            let plan = RestorePlan::new(&found, &lines, &at);
            let keys: Vec<_> = plan.pieces.iter().map(|piece| match piece {
                Piece::Found(number) => found[*number].0,
                Piece::Restored(number) => lines[*number],
            }).collect();
            let kept_lines: Vec<_> = keys.iter().copied().filter(|key| *key < 1000).collect();
            prop_assert_eq!(&kept_lines, &lines);
            let written_others: Vec<_> = found.iter().map(|(key, _)| *key)
                .filter(|key| *key >= 1000 && *key < 1000 + checkpoint as u64).collect();
            prop_assert_eq!(keys.iter().copied().filter(|key| *key >= 1000).collect::<Vec<_>>(), written_others.clone());
            prop_assert_eq!(plan.lost, (others - written_others.len()) as u64);
            let whole = killed_at >= checkpoint && sent().all(|(_, (_, written))| *written);
            if whole {
                prop_assert_eq!(plan.restored(), 0);
            }
        }
    }
}
