//! The machine, the versions and the state of the source code of a run.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The operating system, such as `linux`.
    pub os: String,
    /// The architecture, such as `x86_64`.
    pub arch: String,
    /// The number of threads that can run in parallel.
    pub cpus: usize,
    /// The host name.
    pub hostname: String,
}

impl Machine {
    /// The machine of this process.
    #[must_use]
    pub fn current() -> Machine {
        Machine {
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            hostname: gethostname::gethostname().to_string_lossy().into_owned(),
        }
    }
}

/// The state of the git repository in the current directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Git {
    /// The commit, or the reason why there is none.
    pub commit: String,
    /// Whether tracked files have changes; unknown without a commit.
    pub dirty: Option<bool>,
}

impl Git {
    /// Runs `git`. An error becomes the text of `commit`.
    #[must_use]
    pub fn current() -> Git {
        Git::from_command(git)
    }

    fn from_command(git: impl Fn(&[&str]) -> Result<Answer, std::io::Error>) -> Git {
        let none = |why: &str| Git { commit: why.to_owned(), dirty: None };
        match git(&["rev-parse", "--verify", "--quiet", "HEAD"]) {
            Err(_) => none("git was not found"),
            Ok(Err(_)) => match git(&["rev-parse", "--git-dir"]) {
                Ok(Ok(_)) => none("no commit yet"),
                Ok(Err(why)) if !why.is_empty() && !why.contains("not a git repository") => {
                    // For example because the repository belongs to another user.
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

/// The output of git, or its error message.
type Answer = Result<String, String>;

fn git(arguments: &[&str]) -> Result<Answer, std::io::Error> {
    let mut command = Command::new("git");
    // The error message is parsed, so its language is fixed.
    command.args(arguments).stdin(Stdio::null()).env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C");
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}

/// The versions of this crate, the compiler and the engine.
pub(super) fn versions(engine: Option<&str>) -> BTreeMap<String, String> {
    let ours = [("tenterhook", env!("CARGO_PKG_VERSION")), ("rustc", env!("TENTERHOOK_RUSTC"))];
    let engine = engine.map(|engine| ("engine", engine));
    ours.into_iter().chain(engine).map(|(name, version)| (name.to_owned(), version.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_git_is_parsed() {
        let here = |head: Option<&str>, directory: Result<&str, &str>, status: &str| {
            Git::from_command(|arguments| {
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
        let missing = Git::from_command(|_| Err(std::io::ErrorKind::NotFound.into()));
        assert_eq!(missing, Git { commit: "git was not found".into(), dirty: None });
    }
}
