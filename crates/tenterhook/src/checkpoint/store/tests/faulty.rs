//! A disk that fails or stops at a given operation.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use crate::checkpoint::store::disk::{Disk, Fill, RealDisk};

/// A fault of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Fails with this system error and changes nothing.
    Fails(i32),
    /// Fails with this system error halfway.
    FailsHalfway(i32),
    /// The process is killed halfway: this operation and all later ones fail.
    Dies,
}

pub const EIO: i32 = 5;
pub const ENOSPC: i32 = 28;

/// The real disk, until a fault. Nothing is synced, because these tests cut no power.
pub struct Faulty {
    at: usize,
    fault: Fault,
    /// Whether it can exchange two directories.
    exchanges: bool,
    /// The requested operations.
    asked: Mutex<Vec<String>>,
}

impl Faulty {
    /// A disk that fails only at the operation with this index.
    pub fn new(at: usize, fault: Fault) -> Faulty {
        Faulty { at, fault, exchanges: true, asked: Mutex::default() }
    }

    /// A disk that never fails, and records its operations.
    pub fn never() -> Faulty {
        Faulty::new(usize::MAX, Fault::Dies)
    }

    /// Makes exchanging two directories unsupported.
    pub fn without_exchange(mut self) -> Faulty {
        self.exchanges = false;
        self
    }

    /// The requested operations, in order.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Whether the fault has happened.
    pub fn has_failed(&self) -> bool {
        self.asked().len() > self.at
    }

    /// Runs an operation, or as much of it as the fault allows.
    fn ask(
        &self,
        what: &str,
        path: &Path,
        whole: impl FnOnce() -> io::Result<()>,
        half: impl FnOnce(),
    ) -> io::Result<()> {
        let index = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(format!("{what} {}", path.file_name().unwrap_or_default().to_string_lossy()));
            asked.len() - 1
        };
        match self.fault {
            Fault::Fails(code) if index == self.at => Err(io::Error::from_raw_os_error(code)),
            Fault::FailsHalfway(code) if index == self.at => {
                half();
                Err(io::Error::from_raw_os_error(code))
            }
            Fault::Dies if index == self.at => {
                half();
                Err(io::Error::other("killed"))
            }
            Fault::Dies if index > self.at => Err(io::Error::other("killed")),
            _ => whole(),
        }
    }
}

/// A writer that accepts a limited number of bytes.
struct Room<'a> {
    out: &'a mut dyn Write,
    left: usize,
}

impl Write for Room<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::other("no more room"));
        }
        let written = self.out.write(&bytes[..bytes.len().min(self.left)])?;
        self.left -= written;
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Disk for Faulty {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.ask("make", path, || RealDisk.make_directory(path), || ())
    }

    fn write(&self, path: &Path, fill: Fill<'_>) -> io::Result<()> {
        let fill = std::cell::RefCell::new(fill);
        let whole = || RealDisk.write(path, &mut **fill.borrow_mut());
        let half = || {
            let mut made = File::create(path).unwrap();
            let _ = fill.borrow_mut()(&mut Room { out: &mut made, left: 100 });
        };
        self.ask("write", path, whole, half)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.ask("sync", path, || File::open(path).map(drop), || ())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.ask("sync", path, || File::open(path).map(drop), || ())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ask("rename to", to, || RealDisk.rename(from, to), || ())
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        if !self.exchanges {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.ask("exchange with", other, || RealDisk.exchange(one, other), || ())
    }

    fn link(&self, link: &Path, target: &Path) -> io::Result<()> {
        self.ask("link", link, || RealDisk.link(link, target), || ())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        // Removes a part of the directory.
        let half = || {
            for file in fs::read_dir(path).into_iter().flatten().flatten().take(2) {
                fs::remove_file(file.path()).unwrap();
            }
        };
        self.ask("remove", path, || RealDisk.remove(path), half)
    }
}
