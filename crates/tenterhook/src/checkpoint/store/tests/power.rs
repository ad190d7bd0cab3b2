//! A disk that loses everything that was not synced when the power is cut.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use crate::checkpoint::store::disk::{Disk, Fill, RealDisk};

type Names = BTreeMap<OsString, usize>;

/// A file, directory or link, as the programs see it and as it is on the disk.
#[derive(Clone)]
enum Node {
    File { now: Vec<u8>, synced: Vec<u8> },
    Directory { now: Names, synced: Names },
    Link(PathBuf),
}

/// The unsynced changes that the disk wrote before the power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persisted {
    Nothing,
    /// The names in all directories, but no content of unsynced files.
    Names,
    /// Only the names in the root.
    NamesInRoot,
    /// Only the names in directories below the root.
    NamesBelowRoot,
}

impl Persisted {
    pub const ALL: [Persisted; 4] =
        [Persisted::Nothing, Persisted::Names, Persisted::NamesInRoot, Persisted::NamesBelowRoot];
}

struct State {
    nodes: Vec<Node>,
    operations: usize,
    cut_at: usize,
}

/// The real disk below a directory, until the power is cut.
pub struct PowerCut {
    root: PathBuf,
    exchanges: bool,
    state: Mutex<State>,
}

impl PowerCut {
    /// An empty disk.
    pub fn new(root: &Path, exchanges: bool) -> PowerCut {
        let nodes = vec![Node::Directory { now: Names::new(), synced: Names::new() }];
        let state = Mutex::new(State { nodes, operations: 0, cut_at: usize::MAX });
        PowerCut { root: root.to_owned(), exchanges, state }
    }

    /// Syncs everything.
    pub fn settle(&self) {
        let mut state = self.state.lock().unwrap();
        for node in &mut state.nodes {
            match node {
                Node::File { now, synced } => synced.clone_from(now),
                Node::Directory { now, synced } => synced.clone_from(now),
                Node::Link(_) => {}
            }
        }
    }

    /// Makes the n-th operation from now on fail, and all later ones: the process is killed, or the power is
    /// cut.
    pub fn end_at(&self, operation: usize) {
        let mut state = self.state.lock().unwrap();
        (state.operations, state.cut_at) = (0, operation);
    }

    /// Whether an operation has failed.
    pub fn has_ended(&self) -> bool {
        let state = self.state.lock().unwrap();
        state.operations > state.cut_at
    }

    /// Writes the remaining content into an empty directory.
    pub fn restore(&self, into: &Path, persisted: Persisted) {
        restore(&self.state.lock().unwrap().nodes, 0, into, persisted);
    }

    fn operation(&self, act: impl FnOnce(&mut State) -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.operations += 1;
        if state.operations > state.cut_at {
            return Err(io::Error::other("the power was cut"));
        }
        act(&mut state)
    }

    /// The path components below the root.
    fn components(&self, path: &Path) -> Vec<OsString> {
        let below = path.strip_prefix(&self.root).expect("the store writes below its root");
        let names = below.components().map(|part| match part {
            Component::Normal(name) => name.to_owned(),
            other => panic!("{other:?}"),
        });
        names.collect()
    }

    fn find(&self, state: &State, path: &Path) -> usize {
        let names = self.components(path);
        names.iter().fold(0, |node, name| match &state.nodes[node] {
            Node::Directory { now, .. } => now[name],
            _ => panic!("{} is not in a directory", path.display()),
        })
    }

    /// The names in the directory of a path, and the path's own name.
    fn entry<'s>(&self, state: &'s mut State, path: &Path) -> (&'s mut Names, OsString) {
        let directory = self.find(state, path.parent().unwrap());
        match &mut state.nodes[directory] {
            Node::Directory { now, .. } => (now, path.file_name().unwrap().to_owned()),
            _ => panic!("{} is not in a directory", path.display()),
        }
    }

    fn add(&self, state: &mut State, path: &Path, node: Node) {
        state.nodes.push(node);
        let id = state.nodes.len() - 1;
        let (names, name) = self.entry(state, path);
        names.insert(name, id);
    }
}

fn restore(nodes: &[Node], id: usize, path: &Path, persisted: Persisted) {
    match &nodes[id] {
        Node::File { synced, .. } => fs::write(path, synced).unwrap(),
        Node::Link(target) => std::os::unix::fs::symlink(target, path).unwrap(),
        Node::Directory { now, synced } => {
            let all = match persisted {
                Persisted::Nothing => false,
                Persisted::Names => true,
                Persisted::NamesInRoot => id == 0,
                Persisted::NamesBelowRoot => id != 0,
            };
            fs::create_dir_all(path).unwrap();
            for (name, id) in if all { now } else { synced } {
                restore(nodes, *id, &path.join(name), persisted);
            }
        }
    }
}

impl Disk for PowerCut {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.operation(|state| {
            let below: Vec<_> = path.ancestors().take_while(|made| *made != self.root).collect();
            for made in below.into_iter().rev().filter(|made| made.symlink_metadata().is_err()) {
                self.add(state, made, Node::Directory { now: Names::new(), synced: Names::new() });
            }
            RealDisk.make_directory(path)
        })
    }

    fn write(&self, path: &Path, fill: Fill<'_>) -> io::Result<()> {
        self.operation(|state| {
            RealDisk.write(path, fill)?;
            self.add(state, path, Node::File { now: fs::read(path)?, synced: Vec::new() });
            Ok(())
        })
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.operation(|state| {
            let (names, name) = self.entry(state, path);
            let Some(&id) = names.get(&name) else { return Err(io::ErrorKind::NotFound.into()) };
            match &mut state.nodes[id] {
                Node::File { now, synced } => synced.clone_from(now),
                _ => panic!("{} is no file", path.display()),
            }
            Ok(())
        })
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.operation(|state| {
            let id = self.find(state, path);
            match &mut state.nodes[id] {
                Node::Directory { now, synced } => synced.clone_from(now),
                _ => panic!("{} is no directory", path.display()),
            }
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operation(|state| {
            RealDisk.rename(from, to)?;
            let (names, name) = self.entry(state, from);
            let id = names.remove(&name).unwrap();
            let (names, name) = self.entry(state, to);
            names.insert(name, id);
            Ok(())
        })
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        if !self.exchanges {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.operation(|state| {
            RealDisk.exchange(one, other)?;
            let (first, second) = (self.find(state, one), self.find(state, other));
            for (path, id) in [(one, second), (other, first)] {
                let (names, name) = self.entry(state, path);
                names.insert(name, id);
            }
            Ok(())
        })
    }

    fn link(&self, link: &Path, target: &Path) -> io::Result<()> {
        self.operation(|state| {
            RealDisk.link(link, target)?;
            self.add(state, link, Node::Link(target.to_owned()));
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.operation(|state| {
            RealDisk.remove(path)?;
            let (names, name) = self.entry(state, path);
            let Some(id) = names.remove(&name) else { return Ok(()) };
            // The content is removed first.
            if let Node::Directory { now, .. } = &mut state.nodes[id] {
                now.clear();
            }
            Ok(())
        })
    }
}
