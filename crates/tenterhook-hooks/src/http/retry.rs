//! Trying again, and when to stop.

use std::time::Duration;

use tenterhook_files::Backoff;

use super::Trouble;

/// What an attempt waits for the first time, doubled from then on.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Nobody is left alone for longer than this; what wants more has failed.
const PATIENCE: Duration = Duration::from_mins(5);

/// Why nothing more is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GaveUp {
    pub(crate) trouble: Trouble,
    pub(crate) attempts: u32,
}

impl std::fmt::Display for GaveUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let GaveUp { trouble, attempts } = self;
        match attempts {
            0 | 1 => write!(f, "{trouble}"),
            _ => write!(f, "{trouble} (tried {attempts} times)"),
        }
    }
}

/// Tries until it works, until trying again is of no use, or until `retries` more attempts are used up. `pause`
/// waits, and says `false` when there is no time left to go on.
pub(crate) fn insist(
    retries: u32,
    mut pause: impl FnMut(Duration) -> bool,
    attempt: impl FnMut() -> Result<(), Trouble>,
) -> Result<(), GaveUp> {
    let pause = |trouble: &Trouble, wait: Duration| {
        let asked = match trouble {
            Trouble::Answered { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        trouble.may_pass() && asked <= PATIENCE && pause(wait.max(asked))
    };
    let backoff = Backoff { first: FIRST, longest: LONGEST, retries };
    backoff.retry(attempt, pause).map_err(|(trouble, attempts)| GaveUp { trouble, attempts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, retry_after: Option<u64>) -> Trouble {
        Trouble::Answered { status, retry_after: retry_after.map(Duration::from_secs) }
    }

    /// What comes of these attempts, and how long was waited between them.
    fn tried(retries: u32, attempts: &[Result<(), Trouble>]) -> (Result<(), GaveUp>, Vec<u64>) {
        let (mut waits, mut next) = (Vec::new(), attempts.iter().copied());
        let pause = |time: Duration| {
            waits.push(time.as_secs());
            true
        };
        let result = insist(retries, pause, || next.next().expect("no more is tried"));
        assert_eq!(next.count(), 0, "all of them are tried");
        (result, waits)
    }

    #[test]
    fn what_may_pass_is_tried_again_after_longer_and_longer_pauses() {
        let lost = Err(Trouble::Connection("lost"));
        assert_eq!(tried(3, &[Ok(())]), (Ok(()), vec![]));
        assert_eq!(tried(3, &[Err(answered(500, None)), lost, Ok(())]), (Ok(()), vec![1, 2]));
        let gave_up = GaveUp { trouble: Trouble::Connection("lost"), attempts: 8 };
        assert_eq!(tried(7, &[lost; 8]), (Err(gave_up), vec![1, 2, 4, 8, 16, 30, 30]));
        assert_eq!(gave_up.to_string(), "lost (tried 8 times)");
    }

    #[test]
    fn what_will_not_change_is_not_tried_again() {
        for trouble in [answered(404, None), answered(302, None), Trouble::Hopeless("no")] {
            assert_eq!(tried(3, &[Err(trouble)]), (Err(GaveUp { trouble, attempts: 1 }), vec![]));
        }
        let trouble = Trouble::NoAnswer(Duration::from_secs(10));
        assert_eq!(tried(0, &[Err(trouble)]), (Err(GaveUp { trouble, attempts: 1 }), vec![]));
    }

    #[test]
    fn a_server_is_left_alone_as_long_as_it_asks_within_reason() {
        assert_eq!(tried(3, &[Err(answered(429, Some(7))), Ok(())]), (Ok(()), vec![7]));
        assert_eq!(tried(3, &[Err(answered(503, Some(0))), Ok(())]), (Ok(()), vec![1]));
        let trouble = answered(429, Some(3600));
        assert_eq!(tried(3, &[Err(trouble)]), (Err(GaveUp { trouble, attempts: 1 }), vec![]));
    }

    #[test]
    fn nothing_is_tried_once_there_is_no_time_left() {
        let mut attempts = 0;
        let result = insist(
            9,
            |_| false,
            || {
                attempts += 1;
                Err(Trouble::Connection("lost"))
            },
        );
        assert_eq!((result.map_err(|error| error.to_string()), attempts), (Err("lost".to_owned()), 1));
    }
}
