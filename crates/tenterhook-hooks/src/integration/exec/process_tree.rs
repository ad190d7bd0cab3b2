//! Kills a command together with all its descendants.
//!
//! A process that calls `setsid` leaves the process group, and an orphan loses its parent's id. So on Linux a command is
//! started with a mark that its descendants inherit and that `/proc` shows: an environment variable, and the resource limit
//! of file locks, which survives a cleared environment. No current kernel applies that limit.
//!
//! A child subreaper would need no mark, but it could not tell the orphans of one command from those of another, or from
//! other children of the program. Watching `/proc` would miss processes that detach quickly.

use std::hash::{BuildHasher, RandomState};
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process_group};

/// A running command and its descendants, found by their mark.
#[derive(Clone, Copy)]
pub(super) struct ProcessTree {
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    mark: u64,
}

/// The environment variable that holds the mark.
const MARK: &str = "TENTER_EXEC_ID";

impl ProcessTree {
    /// Starts a command with a new mark.
    pub(super) fn spawn(command: &mut Command) -> std::io::Result<(Child, ProcessTree)> {
        // The largest number would mean "no limit".
        let mark = RandomState::new().hash_one(std::process::id()) >> 1;
        command.env(MARK, mark.to_string());
        #[cfg(target_os = "linux")]
        let child = linux::spawn(command, mark)?;
        #[cfg(not(target_os = "linux"))]
        let child = command.spawn()?;
        Ok((child, ProcessTree { mark }))
    }

    /// Kills the command and its descendants.
    pub(super) fn kill(self, child: &mut Child) {
        #[cfg(target_os = "linux")]
        let descendants = linux::descendants(child.id());
        if let Some(group) = pid(child.id()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // The group may no longer exist.
        let _ = child.kill();
        #[cfg(target_os = "linux")]
        linux::kill_all(descendants, self.mark);
        let _ = child.wait();
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::process::{Child, Command};
    use std::sync::{Mutex, PoisonError};

    use rustix::process::{Resource, Rlimit, Signal, getrlimit, kill_process, prlimit, setrlimit};

    use super::{MARK, pid};

    /// The maximum size of an environment that is searched.
    const ENVIRONMENT: u64 = 8 << 20;
    /// Processes may start others while they are killed, so the search is repeated up to this often.
    const ROUNDS: usize = 20;

    /// Starts a command with the mark as its limit of file locks.
    ///
    /// A child inherits the limits of its parent, so the limit of this process is changed during the spawn. Children that
    /// other threads start meanwhile get the usual limit back.
    pub(super) fn spawn(command: &mut Command, mark: u64) -> std::io::Result<Child> {
        static SPAWNING: Mutex<()> = Mutex::new(());
        let _guard = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
        let usual = getrlimit(Resource::Locks);
        // If the hard limit is lower, only the variable marks the command.
        let marked = setrlimit(Resource::Locks, Rlimit { current: Some(mark), ..usual });
        let child = command.spawn();
        if marked.is_ok() {
            let _ = setrlimit(Resource::Locks, usual);
            let command = child.as_ref().map_or(0, Child::id);
            let parents = parents();
            let own = below(&parents, command);
            let others = below(&parents, std::process::id()).into_iter();
            for id in others.filter(|id| *id != command && !own.contains(id) && is_limited(*id, mark)) {
                let _ = prlimit(pid(id), Resource::Locks, usual);
            }
        }
        child
    }

    /// Kills these processes and all that carry the mark, until none is left.
    pub(super) fn kill_all(found: BTreeSet<u32>, mark: u64) {
        let mut next = found;
        for _ in 0..ROUNDS {
            next.extend(all().into_iter().filter(|id| is_marked(*id, mark)));
            let mut below: BTreeSet<u32> = next.iter().flat_map(|id| descendants(*id)).collect();
            below.append(&mut next);
            if below.is_empty() {
                return;
            }
            for id in &below {
                if let Some(id) = pid(*id) {
                    let _ = kill_process(id, Signal::KILL);
                }
            }
        }
    }

    /// The descendants of a process whose parents are still known, without the process itself.
    pub(super) fn descendants(root: u32) -> BTreeSet<u32> {
        below(&parents(), root)
    }

    /// All processes with their parents.
    fn parents() -> Vec<(u32, u32)> {
        all().into_iter().filter_map(|id| Some((id, parent(id)?))).collect()
    }

    fn below(parents: &[(u32, u32)], root: u32) -> BTreeSet<u32> {
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

    /// The parent of a process that is not a zombie. The name before it may contain anything and ends with the last `)`.
    fn parent(id: u32) -> Option<u32> {
        let stat = tenterhook_files::read_bounded(Path::new(&format!("/proc/{id}/stat")), 4096).ok()?;
        let text = String::from_utf8_lossy(&stat);
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        if state == "Z" { None } else { fields.next()?.parse().ok() }
    }

    /// Whether a live process carries the mark. Processes of other users cannot be read and are left alone.
    fn is_marked(id: u32, mark: u64) -> bool {
        let variable = format!("{MARK}={mark}");
        let environment = read(id, "environ", ENVIRONMENT);
        let has_variable = || environment.split(|byte| *byte == 0).any(|it| it == variable.as_bytes());
        is_limited(id, mark) || has_variable()
    }

    fn is_limited(id: u32, mark: u64) -> bool {
        let limits = String::from_utf8_lossy(&read(id, "limits", 1 << 16)).into_owned();
        let locks = limits.lines().find_map(|line| line.strip_prefix("Max file locks"));
        let limit = locks.and_then(|limits| limits.split_whitespace().next()?.parse().ok());
        // Zombies have limits, too.
        limit == Some(mark) && parent(id).is_some()
    }

    fn read(id: u32, file: &str, most: u64) -> Vec<u8> {
        let path = Path::new("/proc").join(id.to_string()).join(file);
        tenterhook_files::read_bounded(&path, most).unwrap_or_default()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Read;
    use std::process::Stdio;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    /// Starts a command that prints the ids of its children, one per line, and then waits.
    fn ids_of(script: &str, count: usize) -> (Child, ProcessTree, Vec<String>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        let (mut child, tree) = ProcessTree::spawn(&mut command).expect("sh starts");
        let mut output = child.stdout.take().expect("it is piped");
        let mut text = String::new();
        while text.matches('\n').count() < count {
            let mut byte = [0];
            assert_eq!(output.read(&mut byte).expect("it can be read"), 1, "{text}");
            text.push(char::from(byte[0]));
        }
        (child, tree, text.lines().map(str::to_owned).collect())
    }

    /// Whether a process is alive. A killed one may remain a zombie until its new parent reaps it.
    fn lives(id: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
    }

    /// Waits until all processes end, and returns whether they did. A killed process ends only when it is scheduled.
    fn end(ids: &[String]) -> bool {
        let pause = || std::thread::sleep(std::time::Duration::from_millis(1));
        (0..20_000).any(|_| !ids.iter().any(|id| lives(id)) || (pause(), false).1)
    }

    #[test]
    fn children_in_other_sessions_and_without_a_parent_or_an_environment_are_killed() {
        let script = "(env -i setsid sleep 100 </dev/null >/dev/null 2>&1 & echo $!)
            setsid sleep 100 & echo $!
            (setsid sleep 100 & echo $!)
            env -i setsid sleep 100 & echo $!
            wait";
        let (mut child, tree, ids) = ids_of(script, 4);
        assert!(ids.iter().all(|id| lives(id)), "{ids:?}");
        tree.kill(&mut child);
        assert!(end(&ids), "{ids:?}");
    }

    #[test]
    fn other_commands_with_their_orphans_and_other_children_are_not_killed() {
        let (mut other, others, ids) = ids_of("(env -i setsid sleep 100 & echo $!); sleep 100", 1);
        let stop = AtomicBool::new(false);
        let mut children = Vec::new();
        std::thread::scope(|scope| {
            // Other children of this program, started concurrently.
            scope.spawn(|| {
                while !stop.load(Relaxed) && children.len() < 500 {
                    children.push(Command::new("sleep").arg("100").spawn().expect("it starts"));
                }
            });
            for _ in 0..5 {
                let (mut child, tree, _) = ids_of("echo started; sleep 100", 1);
                tree.kill(&mut child);
            }
            stop.store(true, Relaxed);
        });
        let ended = children.iter_mut().filter_map(|child| child.try_wait().expect("it is asked")).count();
        for child in &mut children {
            let _ = child.kill().and_then(|()| child.wait());
        }
        assert_eq!(ended, 0, "of {}", children.len());
        assert!(other.try_wait().expect("it is asked").is_none() && lives(&ids[0]), "{ids:?}");
        others.kill(&mut other);
        assert!(end(&ids), "{ids:?}");
    }
}
