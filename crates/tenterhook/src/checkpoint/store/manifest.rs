//! The list of a checkpoint's files, with the length and the hash of each, and a hash of itself.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// What `manifest.json` holds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The version of the checkpoint's format.
    pub(super) format: u32,
    /// The files by name; the manifest itself is not among them.
    pub(super) files: BTreeMap<String, Sum>,
    /// The BLAKE3 of the manifest's own text with zeros for these 64 digits. The last field in every format to come.
    blake3: String,
}

/// What a file must be, to the byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sum {
    /// Its length.
    pub(super) bytes: u64,
    /// Its BLAKE3, as 64 hexadecimal digits.
    pub(super) blake3: String,
}

/// What can be said of a manifest of any format.
#[derive(Deserialize)]
struct Own {
    format: u32,
    blake3: String,
}

/// What a manifest says, or its format where that is another.
pub(super) enum Read {
    Known(Manifest),
    OtherFormat(u32),
}

impl Manifest {
    /// The text for these files.
    pub(super) fn text(format: u32, files: BTreeMap<String, Sum>) -> io::Result<String> {
        let zeros = "0".repeat(64);
        let manifest = Manifest { format, files, blake3: zeros.clone() };
        let mut text = serde_json::to_string_pretty(&manifest)?;
        text.push('\n');
        let own = blake3::hash(text.as_bytes()).to_hex();
        if let Some(at) = text.rfind(&zeros) {
            text.replace_range(at..at + zeros.len(), &own);
        }
        Ok(text)
    }

    /// Whether this is a manifest of some format, be it damaged.
    pub(super) fn is_one(bytes: &[u8]) -> bool {
        serde_json::from_slice::<Own>(bytes).is_ok_and(|own| own.blake3.len() == 64)
    }

    /// Reads the text, or says what is wrong with it.
    pub(super) fn read(bytes: &[u8], known: u32) -> Result<Read, String> {
        let text = str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let own: Own = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let zeroed = own.blake3.len() == 64;
        let zeroed = zeroed.then(|| text.rfind(&own.blake3)).flatten().map(|at| {
            let mut zeroed = text.to_owned();
            zeroed.replace_range(at..at + 64, &"0".repeat(64));
            zeroed
        });
        if zeroed.is_none_or(|text| *blake3::hash(text.as_bytes()).to_hex() != *own.blake3) {
            return Err("its hash is not the one that it says".to_owned());
        }
        if own.format != known {
            return Ok(Read::OtherFormat(own.format));
        }
        serde_json::from_str(text).map(Read::Known).map_err(|error| error.to_string())
    }
}

/// Passes on what is written, and hashes it on the way.
pub(super) struct Hashing<'a> {
    out: &'a mut dyn Write,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<'a> Hashing<'a> {
    /// So much at once: what has been written is still near when it is hashed.
    const PART: usize = 1 << 18;

    pub(super) fn new(out: &'a mut dyn Write) -> Hashing<'a> {
        Hashing { out, hasher: blake3::Hasher::new(), bytes: 0 }
    }

    /// What has gone through.
    pub(super) fn sum(&self) -> Sum {
        Sum { bytes: self.bytes, blake3: self.hasher.finalize().to_hex().to_string() }
    }
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(&bytes[..bytes.len().min(Self::PART)])?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        // A thread of low priority that only computes is left running for milliseconds while training waits for its core.
        std::thread::yield_now();
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
