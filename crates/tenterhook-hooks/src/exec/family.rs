//! A command with everything that it has started, wherever that has gone.
//!
//! A process group does not hold what calls `setsid`, and a parent's id is lost when the parent ends. So the command has
//! a variable in its environment that no other process has: its descendants inherit it. On Linux `/proc` shows both.

use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process_group};

/// What a command and its descendants have in common.
pub(super) struct Family {
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    mark: String,
}

/// The variable that marks them.
const MARK: &str = "TENTER_EXEC_ID";

impl Family {
    /// Marks a command before it is started.
    pub(super) fn mark(command: &mut Command) -> Family {
        use std::sync::atomic::{AtomicU64, Ordering};
        static STARTED: AtomicU64 = AtomicU64::new(0);
        let since_1970 =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{number}-{}", std::process::id(), since_1970.as_nanos());
        command.env(MARK, &id);
        Family { mark: format!("{MARK}={id}") }
    }

    /// Kills the command with everything that it has started.
    pub(super) fn kill(&self, child: &mut Child) {
        #[cfg(target_os = "linux")]
        let descendants = linux::descendants(child.id());
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // The group may be gone, or never have come to be.
        let _ = child.kill();
        #[cfg(target_os = "linux")]
        linux::kill_all(descendants, &self.mark);
        let _ = child.wait();
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;
    use std::path::Path;

    use rustix::process::{Pid, Signal, kill_process};

    /// The largest environment that is searched.
    const ENVIRONMENT: u64 = 8 << 20;
    /// A process may start another one while it is killed; this often it is looked again.
    const ROUNDS: usize = 20;

    /// Kills these and all that carry the mark, until there are no more.
    pub(super) fn kill_all(found: BTreeSet<u32>, mark: &str) {
        let mut next = found;
        for _ in 0..ROUNDS {
            next.extend(all().into_iter().filter(|id| is_marked(*id, mark)));
            let mut below: BTreeSet<u32> = next.iter().flat_map(|id| descendants(*id)).collect();
            below.append(&mut next);
            if below.is_empty() {
                return;
            }
            for id in &below {
                if let Some(id) = i32::try_from(*id).ok().and_then(Pid::from_raw) {
                    let _ = kill_process(id, Signal::KILL);
                }
            }
        }
    }

    /// Everything that a process has started and that still descends from it, without itself.
    pub(super) fn descendants(root: u32) -> BTreeSet<u32> {
        let parents: Vec<_> = all().into_iter().filter_map(|id| Some((id, parent(id)?))).collect();
        let (mut found, mut next) = (BTreeSet::new(), vec![root]);
        while let Some(parent) = next.pop() {
            let children = parents.iter().filter(|(_, of)| *of == parent).map(|(id, _)| *id);
            next.extend(children.filter(|id| found.insert(*id)));
        }
        found
    }

    fn all() -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// The parent of a process that has not ended. The name before it may contain anything, and ends with the last `)`.
    fn parent(id: u32) -> Option<u32> {
        let stat = tenterhook_files::read_bounded(Path::new(&format!("/proc/{id}/stat")), 4096).ok()?;
        let text = String::from_utf8_lossy(&stat);
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        if state == "Z" { None } else { fields.next()?.parse().ok() }
    }

    /// What belongs to other users cannot be read, and is left alone. A process that has ended has no environment.
    fn is_marked(id: u32, mark: &str) -> bool {
        let environment = Path::new("/proc").join(id.to_string()).join("environ");
        let environment = tenterhook_files::read_bounded(&environment, ENVIRONMENT).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Read;
    use std::process::Stdio;

    use super::*;

    /// A command that prints the ids of what it starts, one per line, and then waits.
    fn ids_of(script: &str, count: usize) -> (Child, Family, Vec<String>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        let family = Family::mark(&mut command);
        let mut child = command.spawn().expect("sh starts");
        let mut output = child.stdout.take().expect("it is piped");
        let mut text = String::new();
        while text.matches('\n').count() < count {
            let mut byte = [0];
            assert_eq!(output.read(&mut byte).expect("it can be read"), 1, "{text}");
            text.push(char::from(byte[0]));
        }
        (child, family, text.lines().map(str::to_owned).collect())
    }

    /// Whether a process has not ended. One that was killed may wait for its new parent to notice.
    fn lives(id: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
    }

    #[test]
    fn children_in_other_sessions_and_without_a_parent_or_an_environment_are_killed() {
        let script = "setsid sleep 1000 & echo $!
            (setsid sleep 1000 & echo $!)
            env -i setsid sleep 1000 & echo $!
            wait";
        let (mut child, family, ids) = ids_of(script, 3);
        assert!(ids.iter().all(|id| lives(id)), "{ids:?}");
        family.kill(&mut child);
        // A process ends as soon as it is scheduled after the signal.
        let is_over = || !ids.iter().any(|id| lives(id));
        let pause = || std::thread::sleep(std::time::Duration::from_millis(1));
        assert!((0..20_000).any(|_| is_over() || (pause(), false).1), "{ids:?}");
    }
}
