//! Checks before step 1 whether a program can be run.

use std::ffi::OsStr;
use std::path::Path;

use rustix::fs::Access;
use tenterhook_core::EnvironmentProblem;

use super::ExecCommand;

impl ExecCommand {
    /// The reason why the command cannot be run, if there is one. For a shell command, only `sh` is checked.
    pub(super) fn lack(&self) -> Option<EnvironmentProblem> {
        self.lack_in(std::env::var_os("PATH").as_deref())
    }

    fn lack_in(&self, path: Option<&OsStr>) -> Option<EnvironmentProblem> {
        let words = self.words();
        let program = words.first()?;
        let problem = if program.contains('/') {
            let file = Path::new(program);
            match file.metadata() {
                Err(error) => format!("its program {program:?} cannot be found: {error}"),
                Ok(_) if !is_executable(file) => format!("its program {program:?} is not an executable file"),
                Ok(_) => return None,
            }
        } else {
            // Without PATH the system uses a default.
            if std::env::split_paths(path?).any(|directory| is_executable(&directory.join(program))) {
                return None;
            }
            format!("its program {program:?} is in no directory of PATH")
        };
        let fix = "install it, make it executable (chmod +x), or write its path in `command`".to_owned();
        Some(EnvironmentProblem { key: "command", problem, fix })
    }
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_that_does_not_exist_or_is_not_executable_is_found_without_running_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("script");
        std::fs::write(&file, "#!/bin/sh\n").expect("it is written");
        let path = directory.path().as_os_str();
        let lack = |program: &str| {
            ExecCommand::Program(vec![program.to_owned(), "argument".to_owned()]).lack_in(Some(path))
        };
        let problem = |program: &str| lack(program).expect(program).problem;
        let full = file.to_str().expect("it is text");
        assert_eq!(problem("script"), "its program \"script\" is in no directory of PATH");
        assert_eq!(problem(full), format!("its program {full:?} is not an executable file"));
        assert_eq!(problem("/"), "its program \"/\" is not an executable file");
        assert!(problem("/no/such").contains("cannot be found: No such file"), "{}", problem("/no/such"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        assert_eq!((lack("script"), lack(full)), (None, None));
        assert_eq!(ExecCommand::Shell("no-such-program".into()).lack(), None, "only `sh` knows");
    }
}
