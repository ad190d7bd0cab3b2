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
    /// Whether files under version control were changed; unknown without a commit.
    pub dirty: Option<bool>,
}

impl Git {
    /// As `git` tells it. That it cannot never fails a run.
    #[must_use]
    pub fn here() -> Git {
        Git::told_by(git)
    }

    fn told_by(git: impl Fn(&[&str]) -> Result<Option<String>, std::io::Error>) -> Git {
        let none = |why: &str| Git { commit: why.to_owned(), dirty: None };
        match git(&["rev-parse", "--verify", "--quiet", "HEAD"]) {
            Err(_) => none("git was not found"),
            Ok(None) => match git(&["rev-parse", "--git-dir"]) {
                Ok(Some(_)) => none("no commit yet"),
                _ => none("not a git repository"),
            },
            Ok(Some(commit)) => {
                let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
                let dirty = changed.ok().flatten().map(|files| !files.is_empty());
                Git { commit, dirty }
            }
        }
    }
}

/// What git says; `None` when it does not like the question.
fn git(arguments: &[&str]) -> Result<Option<String>, std::io::Error> {
    let mut command = Command::new("git");
    command.args(arguments).stdin(Stdio::null()).env("GIT_OPTIONAL_LOCKS", "0");
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(output.status.success().then_some(said))
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
        let here = |head: Option<&str>, directory: Option<&str>, status: &str| {
            Git::told_by(|arguments| {
                Ok(match arguments {
                    ["status", ..] => Some(status.to_owned()),
                    ["rev-parse", "--git-dir"] => directory.map(str::to_owned),
                    _ => head.map(str::to_owned),
                })
            })
        };
        assert_eq!(here(None, None, "").commit, "not a git repository");
        assert_eq!(here(None, Some(".git"), "").commit, "no commit yet");
        assert_eq!(here(Some("abc"), Some(".git"), ""), Git { commit: "abc".into(), dirty: Some(false) });
        assert_eq!(here(Some("abc"), Some(".git"), "M a").dirty, Some(true));
        let missing = Git::told_by(|_| Err(std::io::ErrorKind::NotFound.into()));
        assert_eq!(missing, Git { commit: "git was not found".into(), dirty: None });
    }
}
