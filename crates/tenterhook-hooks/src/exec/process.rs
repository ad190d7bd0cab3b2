//! Runs a command to its end, or to the end of our patience. Whatever it does with its pipes, it cannot keep us.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tenterhook_core::EffectPermit;

use super::family::Family;

/// So much of a command's output is kept, from its start.
const OUTPUT: usize = 8 * 1024;
/// So much of its errors, from their end.
const ERRORS: usize = 2 * 1024;
/// What a command has left running may hold its pipes for as long as it likes; we look at them this much longer.
const AFTERWARDS: Duration = Duration::from_millis(500);

/// What a command that ended well has said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// The first lines of its standard output.
    pub(super) lines: Vec<String>,
    /// How many bytes more there were.
    pub(super) left_out: u64,
}

/// How a command is waited for.
pub(super) struct Patience<'a> {
    /// After so long it is killed.
    pub(super) timeout: Duration,
    /// As soon as this says so it is killed, too.
    pub(super) is_over: &'a dyn Fn() -> bool,
}

/// Runs a command with this on its standard input. The error says what went wrong, without the command.
pub(super) fn run(
    _: EffectPermit,
    mut command: Command,
    input: Vec<u8>,
    patience: &Patience<'_>,
) -> Result<Said, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own: a Ctrl-C in our terminal is not meant for it, and it can be killed with all its children.
    command.process_group(0);
    let started = Family::start(&mut command);
    let (mut child, family) = started.map_err(|error| format!("could not be started: {error}"))?;
    let talking = pipe(&mut child, input).map_err(|error| format!("could not be talked to: {error}"));
    let (output, errors) = match talking {
        Ok(pipes) => pipes,
        Err(error) => {
            family.kill(&mut child);
            return Err(error);
        }
    };
    let ended = wait(&mut child, patience);
    if ended.is_err() {
        family.kill(&mut child);
    }
    let until = Instant::now() + AFTERWARDS;
    let (output, errors) = (output.until(until), errors.until(until));
    let problem = match ended {
        Ok(status) if status.success() => {
            let text = String::from_utf8_lossy(&output.bytes);
            return Ok(Said { lines: text.lines().map(str::to_owned).collect(), left_out: output.left_out });
        }
        Ok(status) => how_it_ended(status),
        Err(gave_up) => gave_up,
    };
    let text = String::from_utf8_lossy(&errors.bytes);
    let text = text.trim();
    Err(if text.is_empty() { problem } else { format!("{problem}; its last words: {text}") })
}

fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        _ => "failed".to_owned(),
    }
}

/// Waits for its end, at most as long as there is patience.
fn wait(child: &mut Child, patience: &Patience<'_>) -> Result<ExitStatus, String> {
    let (start, mut nap) = (Instant::now(), Duration::from_millis(1));
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => return Err(format!("could not be waited for: {error}")),
        }
        if start.elapsed() >= patience.timeout {
            return Err(format!("was killed because it took longer than `timeout`, {:?}", patience.timeout));
        }
        if (patience.is_over)() {
            return Err("was killed because the run was over before it; raise `flush_timeout`".to_owned());
        }
        thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(20));
    }
}

/// Threads of their own for its pipes: one that does not read, or does not stop to write, keeps nobody else.
fn pipe(child: &mut Child, input: Vec<u8>) -> std::io::Result<(Heard, Heard)> {
    if let Some(mut stdin) = child.stdin.take() {
        // One that ends without reading is no mistake.
        thread::Builder::new().name("exec stdin".into()).spawn(move || drop(stdin.write_all(&input)))?;
    }
    let output = child.stdout.take().map(|pipe| hear(pipe, Keep::First(OUTPUT))).transpose()?;
    let errors = child.stderr.take().map(|pipe| hear(pipe, Keep::Last(ERRORS))).transpose()?;
    Ok((output.unwrap_or_default(), errors.unwrap_or_default()))
}

#[derive(Clone, Copy)]
enum Keep {
    First(usize),
    Last(usize),
}

#[derive(Clone, Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    left_out: u64,
}

impl Kept {
    fn add(&mut self, bytes: &[u8], keep: Keep) {
        self.bytes.extend_from_slice(bytes);
        let (Keep::First(most) | Keep::Last(most)) = keep;
        let surplus = self.bytes.len().saturating_sub(most);
        match keep {
            Keep::First(most) => self.bytes.truncate(most),
            Keep::Last(_) => drop(self.bytes.drain(..surplus)),
        }
        self.left_out += surplus as u64;
    }
}

/// What comes out of a pipe.
#[derive(Default)]
struct Heard {
    kept: Arc<Mutex<Kept>>,
    /// Closed when the pipe is.
    open: Option<Receiver<()>>,
}

impl Heard {
    /// What there is when the pipe is closed, and then at the latest.
    fn until(self, latest: Instant) -> Kept {
        if let Some(open) = self.open {
            let _ = open.recv_timeout(latest.saturating_duration_since(Instant::now()));
        }
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn hear(mut pipe: impl Read + Send + 'static, keep: Keep) -> std::io::Result<Heard> {
    let kept = Arc::<Mutex<Kept>>::default();
    let (closed, open) = channel();
    let into = kept.clone();
    let listen = move || {
        let _closed = closed;
        let mut buffer = [0; 8 * 1024];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            into.lock().unwrap_or_else(PoisonError::into_inner).add(&buffer[..count], keep);
        }
    };
    thread::Builder::new().name("exec output".into()).spawn(listen)?;
    Ok(Heard { kept, open: Some(open) })
}

#[cfg(test)]
mod tests {
    use tenterhook_core::RunInfo;

    use super::*;

    /// More than any of these commands takes by itself.
    const LONG: Duration = Duration::from_mins(1);

    fn sh(script: &str, input: &[u8], timeout: Duration) -> Result<Said, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(outside(), command, input.to_vec(), &Patience { timeout, is_over: &|| false })
    }

    fn outside() -> EffectPermit {
        RunInfo::default().effect_permit().expect("it is no dry run")
    }

    fn lines(lines: &[&str]) -> Result<Said, String> {
        Ok(Said { lines: lines.iter().map(|line| (*line).to_owned()).collect(), left_out: 0 })
    }

    #[test]
    fn a_command_gets_its_input_and_says_its_lines() {
        assert_eq!(sh("cat; echo; echo two", b"one", LONG), lines(&["one", "two"]));
        assert_eq!(sh("true", b"", LONG), lines(&[]));
    }

    #[test]
    fn one_that_fails_says_how_and_with_which_last_words() {
        assert_eq!(
            sh("echo no >&2; exit 3", b"", LONG),
            Err("ended with exit code 3; its last words: no".into())
        );
        assert_eq!(sh("exit 4", b"", LONG), Err("ended with exit code 4".into()));
        assert_eq!(sh("kill -9 $$", b"", LONG), Err("was ended by signal 9".into()));
        let missing = run(
            outside(),
            Command::new("/no/such/program"),
            Vec::new(),
            &Patience { timeout: LONG, is_over: &|| false },
        );
        let error = missing.expect_err("it is not there");
        assert!(error.starts_with("could not be started: "), "{error}");
    }

    #[test]
    fn one_that_does_not_read_or_floods_us_keeps_nobody() {
        let large = vec![b'x'; 1 << 20];
        assert_eq!(sh("exit 0", &large, LONG), lines(&[]));
        let said = sh("head -c 3000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero >&2", &large, LONG);
        let said = said.expect("it ends well");
        assert_eq!(
            (said.lines.len(), said.lines[0].len(), said.left_out),
            (1, OUTPUT, 3_000_000 - OUTPUT as u64)
        );
        let error = sh("seq 1 100000 >&2; exit 1", b"", LONG).expect_err("it fails");
        assert!(error.ends_with("\n99999\n100000") && error.len() < ERRORS + 100, "{}", error.len());
    }

    #[test]
    fn what_it_leaves_running_keeps_nobody_either() {
        let start = Instant::now();
        assert_eq!(sh("sleep 50 & echo done", b"", LONG), lines(&["done"]));
        assert!(start.elapsed() < Duration::from_secs(40));
    }

    #[test]
    fn one_that_takes_too_long_is_killed_with_all_its_children() {
        let dir = tempfile::tempdir().expect("a directory");
        let script =
            format!("(sleep 2; touch {}) & echo waiting >&2; wait", dir.path().join("alive").display());
        let error = sh(&script, b"", Duration::from_millis(500)).expect_err("it takes too long");
        assert_eq!(error, "was killed because it took longer than `timeout`, 500ms; its last words: waiting");
        thread::sleep(Duration::from_secs(3));
        assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0, "a child of it lives");
    }

    #[test]
    fn one_that_is_still_there_when_all_is_over_is_killed() {
        let mut command = Command::new("sleep");
        command.arg("50");
        let error = run(outside(), command, Vec::new(), &Patience { timeout: LONG, is_over: &|| true })
            .expect_err("it is over");
        assert!(error.contains("raise `flush_timeout`"), "{error}");
    }
}
