//! A file of JSON lines that only grows, except that a resumed run takes up where its checkpoint was.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tenterhook_core::RunInfo;
use tenterhook_files::RelPath;

use crate::own_file;

#[derive(Debug)]
pub(super) struct Lines {
    pub(super) path: PathBuf,
    /// The path as a checkpoint names it.
    pub(super) name: RelPath,
    file: File,
    /// How many bytes of whole lines it holds.
    pub(super) length: u64,
}

impl Lines {
    /// Opens the file at its end, or makes it. Of a longer one only `keep` bytes stay, where that is said and a
    /// line ends there: else the file has gone another way since, and all of it stays. Half a line at its end,
    /// which a killed run may have left, goes.
    pub(super) fn open(run: &RunInfo, path: PathBuf, name: RelPath, keep: Option<u64>) -> Result<Lines> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut file = own_file::open(run, &path, OpenOptions::new().read(true).append(true).create(true))?;
        let mut length = whole_lines(&mut file, u64::MAX)?;
        if let Some(keep) = keep.filter(|keep| *keep < length)
            && whole_lines(&mut file, keep)? == keep
        {
            length = keep;
        }
        // A device or a pipe has no length to change.
        if file.metadata()?.len() > length {
            file.set_len(length)?;
        }
        Ok(Lines { path, name, file, length })
    }

    /// Adds a line, whole or not at all, and leaves it to nobody's buffer.
    pub(super) fn push(&mut self, line: &[u8]) -> Result<()> {
        let written = self.file.write_all(line).and_then(|()| self.file.flush());
        match written {
            Ok(()) => self.length += line.len() as u64,
            // Half a line must not stay. If that fails too, whoever opens the file next cuts it off.
            Err(_) => drop(self.file.set_len(self.length)),
        }
        written
    }

    pub(super) fn is_at(&self, path: &Path) -> bool {
        self.path == path
    }
}

/// How many bytes the whole lines within the first so many bytes take up.
fn whole_lines(file: &mut File, within: u64) -> Result<u64> {
    const BLOCK: u64 = 4096;
    let mut end = file.metadata()?.len().min(within);
    let mut block = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        block.clear();
        file.seek(SeekFrom::Start(start))?;
        Read::by_ref(file).take(end - start).read_to_end(&mut block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_line_goes_and_so_does_what_came_after_the_checkpoint() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("below").join("lines");
        let name = || RelPath::new("a").expect("a name");
        let run = RunInfo::default();
        let opened = |keep| Lines::open(&run, path.clone(), name(), keep).expect("it opens");
        let mut lines = opened(None);
        let long = [b"x".repeat(5000), b"\n".to_vec()].concat();
        for line in [b"1\n".as_slice(), &long, b"2\n"] {
            lines.push(line).expect("it is written");
        }
        assert_eq!(lines.length, 5005);
        let text = |path: &Path| fs::read_to_string(path).expect("it is there");
        fs::write(&path, text(&path) + &"half".repeat(2000)).expect("it is written");
        assert_eq!(opened(None).length, 5005);
        assert!(text(&path).ends_with("x\n2\n"));
        assert_eq!(opened(Some(9999)).length, 5005);
        assert_eq!(opened(Some(3)).length, 5005, "no line ends there");
        assert_eq!(opened(Some(2)).length, 2);
        assert_eq!(text(&path), "1\n");
        fs::write(&path, "half").expect("it is written");
        assert_eq!(opened(None).length, 0);
    }
}
