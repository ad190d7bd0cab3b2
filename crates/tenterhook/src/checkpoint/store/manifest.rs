//! `manifest.json`: the files of a checkpoint with their lengths and hashes, and a hash of itself.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// The content of `manifest.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The version of the checkpoint's format.
    pub(super) format: u32,
    /// All files but the manifest, by name.
    pub(super) files: BTreeMap<String, FileDigest>,
    /// The BLAKE3 of the manifest's text with zeros for these 64 digits. The last field in every future format.
    blake3: String,
}

/// The length and the hash of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileDigest {
    /// Its length.
    pub(super) bytes: u64,
    /// Its BLAKE3, as 64 hexadecimal digits.
    pub(super) blake3: String,
}

/// The fields of a manifest of any format.
#[derive(Deserialize)]
struct ManifestHeader {
    format: u32,
    blake3: String,
}

/// A parsed manifest, or its format if that is another one.
pub(super) enum ParsedManifest {
    Known(Manifest),
    OtherFormat(u32),
}

impl Manifest {
    /// The text for these files.
    pub(super) fn text(format: u32, files: BTreeMap<String, FileDigest>) -> io::Result<String> {
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

    /// Whether this is a manifest of any format; it may be damaged.
    pub(super) fn is_manifest(bytes: &[u8]) -> bool {
        serde_json::from_slice::<ManifestHeader>(bytes).is_ok_and(|header| header.blake3.len() == 64)
    }

    /// Parses the text and checks its own hash. The error says what is wrong with it.
    pub(super) fn parse(bytes: &[u8], known: u32) -> Result<ParsedManifest, String> {
        let text = str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let header: ManifestHeader = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let is_hash = header.blake3.len() == 64;
        let zeroed = is_hash.then(|| text.rfind(&header.blake3)).flatten().map(|at| {
            let mut zeroed = text.to_owned();
            zeroed.replace_range(at..at + 64, &"0".repeat(64));
            zeroed
        });
        if zeroed.is_none_or(|text| *blake3::hash(text.as_bytes()).to_hex() != *header.blake3) {
            return Err("it does not match its own hash".to_owned());
        }
        if header.format != known {
            return Ok(ParsedManifest::OtherFormat(header.format));
        }
        serde_json::from_str(text).map(ParsedManifest::Known).map_err(|error| error.to_string())
    }
}

/// A writer that hashes what passes through it.
pub(super) struct HashingWriter<'a> {
    out: &'a mut dyn Write,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<'a> HashingWriter<'a> {
    /// The largest write: small enough to still be in the processor's cache when it is hashed.
    const PART: usize = 1 << 18;

    pub(super) fn new(out: &'a mut dyn Write) -> HashingWriter<'a> {
        HashingWriter { out, hasher: blake3::Hasher::new(), bytes: 0 }
    }

    /// The length and the hash of what was written.
    pub(super) fn digest(&self) -> FileDigest {
        FileDigest { bytes: self.bytes, blake3: self.hasher.finalize().to_hex().to_string() }
    }
}

impl Write for HashingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(&bytes[..bytes.len().min(Self::PART)])?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        // Without this, the scheduler lets a low-priority thread run for milliseconds while training waits
        // for the core.
        std::thread::yield_now();
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
