//! Retries of requests with exponential backoff.

use std::time::Duration;

use tenterhook_files::Backoff;

use super::HttpError;

/// The first pause; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// The longest `Retry-After` that is honoured.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// The error of the last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryError {
    pub(crate) error: HttpError,
    pub(crate) attempts: u32,
}

impl std::fmt::Display for RetryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RetryError { error, attempts } = self;
        match attempts {
            0 | 1 => write!(f, "{error}"),
            _ => write!(f, "{error} (tried {attempts} times)"),
        }
    }
}

/// Repeats `attempt` until it succeeds, fails permanently or `retries` are used up. `pause` waits and returns whether there
/// is time for another attempt.
pub(crate) fn retry(
    retries: u32,
    mut pause: impl FnMut(Duration) -> bool,
    attempt: impl FnMut() -> Result<(), HttpError>,
) -> Result<(), RetryError> {
    let pause = |error: &HttpError, wait: Duration| {
        let asked = match error {
            HttpError::Status { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        error.is_transient() && asked <= MAX_RETRY_AFTER && pause(wait.max(asked))
    };
    let backoff = Backoff { first: FIRST, longest: LONGEST, retries };
    backoff.retry(attempt, pause).map_err(|(error, attempts)| RetryError { error, attempts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, retry_after: Option<u64>) -> HttpError {
        HttpError::Status { status, retry_after: retry_after.map(Duration::from_secs) }
    }

    /// The result of these attempts, and the seconds of the pauses between them.
    fn tried(retries: u32, attempts: &[Result<(), HttpError>]) -> (Result<(), RetryError>, Vec<u64>) {
        let (mut waits, mut next) = (Vec::new(), attempts.iter().copied());
        let pause = |time: Duration| {
            waits.push(time.as_secs());
            true
        };
        let result = retry(retries, pause, || next.next().expect("no more is tried"));
        assert_eq!(next.count(), 0, "all of them are tried");
        (result, waits)
    }

    #[test]
    fn transient_errors_are_retried_with_growing_pauses() {
        let lost = Err(HttpError::Connection("lost"));
        assert_eq!(tried(3, &[Ok(())]), (Ok(()), vec![]));
        assert_eq!(tried(3, &[Err(status(500, None)), lost, Ok(())]), (Ok(()), vec![1, 2]));
        let final_error = RetryError { error: HttpError::Connection("lost"), attempts: 8 };
        assert_eq!(tried(7, &[lost; 8]), (Err(final_error), vec![1, 2, 4, 8, 16, 30, 30]));
        assert_eq!(final_error.to_string(), "lost (tried 8 times)");
    }

    #[test]
    fn permanent_errors_are_not_retried() {
        for error in [status(404, None), status(302, None), HttpError::Permanent("no")] {
            assert_eq!(tried(3, &[Err(error)]), (Err(RetryError { error, attempts: 1 }), vec![]));
        }
        let error = HttpError::Timeout(Duration::from_secs(10));
        assert_eq!(tried(0, &[Err(error)]), (Err(RetryError { error, attempts: 1 }), vec![]));
    }

    #[test]
    fn retry_after_is_honoured_up_to_a_maximum() {
        assert_eq!(tried(3, &[Err(status(429, Some(7))), Ok(())]), (Ok(()), vec![7]));
        assert_eq!(tried(3, &[Err(status(503, Some(0))), Ok(())]), (Ok(()), vec![1]));
        let error = status(429, Some(3600));
        assert_eq!(tried(3, &[Err(error)]), (Err(RetryError { error, attempts: 1 }), vec![]));
    }

    #[test]
    fn there_is_no_retry_without_time_left() {
        let mut attempts = 0;
        let result = retry(
            9,
            |_| false,
            || {
                attempts += 1;
                Err(HttpError::Connection("lost"))
            },
        );
        assert_eq!((result.map_err(|error| error.to_string()), attempts), (Err("lost".to_owned()), 1));
    }
}
