//! What a run ran on: the machine, the versions, and the state of the source.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Such as `linux`.
    pub os: String,
    /// Such as `x86_64`.
    pub arch: String,
    /// How many threads can run at once.
    pub cpus: usize,
    /// Its name.
    pub hostname: String,
}

impl Machine {
    /// This one.
    #[must_use]
    pub fn this() -> Machine {
        Machine {
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            hostname: gethostname::gethostname().to_string_lossy().into_owned(),
        }
    }
}

/// The source that lies in the current directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Git {
    /// The commit, or why there is none.
    pub commit: String,
    /// Whether files under version control were changed, others do not count; unknown without a commit.
    pub dirty: Option<bool>,
}

impl Git {
    /// As `git` tells it. That it cannot never fails a run.
    #[must_use]
    pub fn here() -> Git {
        Git::told_by(git)
    }

    fn told_by(git: impl Fn(&[&str]) -> Result<Answer, std::io::Error>) -> Git {
        let none = |why: &str| Git { commit: why.to_owned(), dirty: None };
        match git(&["rev-parse", "--verify", "--quiet", "HEAD"]) {
            Err(_) => none("git was not found"),
            Ok(Err(_)) => match git(&["rev-parse", "--git-dir"]) {
                Ok(Ok(_)) => none("no commit yet"),
                Ok(Err(why)) if !why.is_empty() && !why.contains("not a git repository") => {
                    // Such as that the repository belongs to somebody else.
                    let why = why.lines().next().unwrap_or_default();
                    none(&format!("git refuses: {}", why.trim_start_matches("fatal: ")))
                }
                _ => none("not a git repository"),
            },
            Ok(Ok(commit)) => {
                let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
                let dirty = changed.ok().and_then(Result::ok).map(|files| !files.is_empty());
                Git { commit, dirty }
            }
        }
    }
}

/// What git says, or what it complains of.
type Answer = Result<String, String>;

fn git(arguments: &[&str]) -> Result<Answer, std::io::Error> {
    let mut command = Command::new("git");
    // Its complaints are read, so they must be in one language.
    command.args(arguments).stdin(Stdio::null()).env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C");
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}

/// This crate, the compiler, and the engine as it names itself.
pub(super) fn versions(engine: Option<&str>) -> BTreeMap<String, String> {
    let ours = [("tenterhook", env!("CARGO_PKG_VERSION")), ("rustc", env!("TENTERHOOK_RUSTC"))];
    let engine = engine.map(|engine| ("engine", engine));
    ours.into_iter().chain(engine).map(|(name, version)| (name.to_owned(), version.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_says_is_understood() {
        let here = |head: Option<&str>, directory: Result<&str, &str>, status: &str| {
            Git::told_by(|arguments| {
                Ok(match arguments {
                    ["status", ..] => Ok(status.to_owned()),
                    ["rev-parse", "--git-dir"] => directory.map(str::to_owned).map_err(str::to_owned),
                    _ => head.map(str::to_owned).ok_or_else(String::new),
                })
            })
        };
        let none = "fatal: not a git repository (or any of the parent directories): .git";
        assert_eq!(here(None, Err(none), "").commit, "not a git repository");
        let foreign = "fatal: detected dubious ownership in repository at '/x'\nTo add an exception, call:";
        let refused = here(None, Err(foreign), "");
        assert_eq!(refused.commit, "git refuses: detected dubious ownership in repository at '/x'");
        assert_eq!(refused.dirty, None);
        assert_eq!(here(None, Ok(".git"), "").commit, "no commit yet");
        assert_eq!(here(Some("abc"), Ok(".git"), ""), Git { commit: "abc".into(), dirty: Some(false) });
        assert_eq!(here(Some("abc"), Ok(".git"), "M a").dirty, Some(true));
        let missing = Git::told_by(|_| Err(std::io::ErrorKind::NotFound.into()));
        assert_eq!(missing, Git { commit: "git was not found".into(), dirty: None });
    }
}
