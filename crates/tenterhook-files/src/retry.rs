//! Retries with exponential backoff.

use std::time::Duration;

/// Exponential backoff: the number of retries and the pauses between them.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The first pause; each further pause is twice as long.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// The number of attempts after the first.
    pub retries: u32,
}

impl Backoff {
    /// Retries until an attempt succeeds, the attempts are used up, or `pause` returns `false`. `pause` receives the
    /// error and the time to wait; it waits, and decides whether to retry.
    ///
    /// # Errors
    /// The error of the last attempt, and the number of attempts.
    pub fn retry<T, E>(
        self,
        mut attempt: impl FnMut() -> Result<T, E>,
        mut pause: impl FnMut(&E, Duration) -> bool,
    ) -> Result<T, (E, u32)> {
        let (mut attempts, mut wait) = (1, self.first.min(self.longest));
        loop {
            match attempt() {
                Err(error) if attempts <= self.retries && pause(&error, wait) => {}
                done => return done.map_err(|error| (error, attempts)),
            }
            attempts += 1;
            wait = wait.saturating_mul(2).min(self.longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_an_attempt_succeeds_or_all_are_used_up() {
        let tried = |failures: u32, retries: u32, patience: u64| {
            let (mut attempts, mut waits) = (0, Vec::new());
            let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(5), retries };
            let attempt = || {
                attempts += 1;
                if attempts > failures { Ok(attempts) } else { Err("busy") }
            };
            let result = backoff.retry(attempt, |error, wait| {
                assert_eq!(*error, "busy");
                waits.push(wait.as_secs());
                wait.as_secs() <= patience
            });
            (result, waits)
        };
        assert_eq!(tried(0, 3, 9), (Ok(1), vec![]));
        assert_eq!(tried(2, 3, 9), (Ok(3), vec![1, 2]));
        assert_eq!(tried(9, 4, 9), (Err(("busy", 5)), vec![1, 2, 4, 5]));
        assert_eq!(tried(9, 0, 9), (Err(("busy", 1)), vec![]));
        assert_eq!(tried(9, 4, 2), (Err(("busy", 3)), vec![1, 2, 4]), "`pause` returned false");
    }
}
