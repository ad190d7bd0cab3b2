//! Estimates of the memory that a configuration needs, and the memory of the machine.
//!
//! A [`Task`](crate::task::Task) estimates the memory that it needs. The estimate is compared with that of
//! the machine before anything is allocated, so that a wrong number in a configuration is an error with its
//! key instead of an abort.

use std::fmt;

/// The limit in bytes if the memory of the machine is unknown.
const SANITY: f64 = 1e15;

/// The memory available to this process, in bytes: that of the machine, or the limit of its control group.
/// `None` if unknown.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let total = read("/proc/meminfo").and_then(|text| of_meminfo(&text));
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|path| read(&path)?.trim().parse().ok());
    limits.chain(total).min()
}

/// [`available_bytes`], or the largest addressable size if that is unknown.
#[must_use]
pub fn limit_in_bytes() -> usize {
    available_bytes().map_or(usize::MAX / 2, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX / 2))
}

/// The total memory in the text of `/proc/meminfo`.
fn of_meminfo(text: &str) -> Option<u64> {
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The files that may limit the control groups in the text of `/proc/self/cgroup`: those of version 2, and of
/// `memory` in version 1.
fn limit_files(groups: &str) -> Vec<String> {
    let mut files = Vec::new();
    for group in groups.lines() {
        let mut parts = group.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // A limit of a group also applies to all groups below it.
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        files.extend(ends.map(|end| format!("{root}{}/{file}", &path[..end])));
    }
    files
}

/// An estimate of the memory that a configuration needs. Each part has the key it depends on.
///
/// Sizes are floating-point numbers, because products of sizes may overflow integers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
struct Part {
    key: String,
    what: String,
    bytes: f64,
}

/// A configuration that needs more memory than is available.
#[derive(Clone, Debug, PartialEq)]
pub struct TooLarge {
    /// The key that the largest part depends on.
    pub key: String,
    /// A description of the largest part.
    pub what: String,
    /// The memory needed, in bytes.
    pub needed: f64,
    /// The available memory in bytes, if known.
    pub available: Option<u64>,
}

impl Estimate {
    /// An empty estimate.
    #[must_use]
    pub fn new() -> Estimate {
        Estimate::default()
    }

    /// Adds a part, such as "the weights with gradients and optimizer state", which depends on this key.
    #[must_use]
    pub fn part(mut self, key: impl Into<String>, what: impl Into<String>, bytes: f64) -> Estimate {
        self.parts.push(Part { key: key.into(), what: what.into(), bytes: bytes.max(0.0) });
        self
    }

    /// Adds a part that depends on several keys. Each key comes with the ratio of its value to the usual one;
    /// the key with the largest ratio is reported (the last one if several are equal).
    #[must_use]
    pub fn part_of(self, sizes: &[(&str, f64)], what: impl Into<String>, bytes: f64) -> Estimate {
        let furthest = sizes.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        self.part(furthest.map_or("", |(key, _)| *key), what, bytes)
    }

    /// The sum of all parts, in bytes.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Checks that enough memory is available.
    ///
    /// # Errors
    /// [`TooLarge`], with the key of the largest part.
    pub fn check(&self, available: Option<u64>) -> Result<(), TooLarge> {
        let needed = self.bytes();
        let most = available.map_or(SANITY, |bytes| bytes as f64);
        if needed <= most {
            return Ok(());
        }
        let largest = self.parts.iter().max_by(|a, b| a.bytes.total_cmp(&b.bytes));
        let (key, what) = largest.map(|part| (part.key.clone(), part.what.clone())).unwrap_or_default();
        Err(TooLarge { key, what, needed, available })
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "needs about {} of memory, most of it for {}", size_text(self.needed), self.what)?;
        match self.available {
            Some(bytes) => write!(f, "; this machine has {}", size_text(bytes as f64)),
            None => Ok(()),
        }
    }
}

/// A size with its unit.
fn size_text(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["MB", "GB", "TB", "PB", "EB", "ZB"];
    let mut size = bytes / 1e6;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    while size >= 999.5
        && let Some(next) = units.next()
    {
        (size, unit) = (size / 1000.0, next);
    }
    if size >= 1e4 { format!("{size:.0e} {unit}") } else { format!("{size:.0} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_large_an_estimate_is_refused_with_its_largest_part() {
        let estimate = Estimate::new().part("model.hidden", "the weights", 150e9).part(
            "loader.batch_size",
            "a batch",
            1e6,
        );
        assert_eq!(estimate.check(Some(200_000_000_000)), Ok(()));
        let refused = estimate.check(Some(24_000_000_000)).unwrap_err();
        assert_eq!(refused.key, "model.hidden");
        assert_eq!(
            refused.to_string(),
            "needs about 150 GB of memory, most of it for the weights; this machine has 24 GB"
        );
        assert_eq!(estimate.check(None), Ok(()), "an unknown size has a large limit");
        let endless = Estimate::new().part("x", "it", f64::MAX).part("y", "that", f64::MAX);
        assert!(endless.check(None).unwrap_err().to_string().starts_with("needs about inf"));
    }

    #[test]
    fn a_part_of_several_keys_is_named_by_the_key_with_the_largest_ratio() {
        let named = |hidden, batch| {
            let sizes = [("model.hidden", hidden), ("loader.batch_size", batch)];
            Estimate::new().part_of(&sizes, "activations", 2e9).check(Some(1_000_000_000)).unwrap_err().key
        };
        assert_eq!(named(100.0, 2.0), "model.hidden");
        assert_eq!(named(2.0, 100.0), "loader.batch_size");
        assert_eq!(named(1.0, 1.0), "loader.batch_size");
    }

    #[test]
    fn the_memory_of_a_machine_and_of_its_control_groups_is_found() {
        assert_eq!(of_meminfo("MemFree: 5 kB\nMemTotal:       1024 kB\n"), Some(1 << 20));
        assert_eq!(of_meminfo("nothing"), None);
        assert_eq!(
            limit_files("4:memory,cpu:/a\n1:cpu:/b\n0::/x/y\n"),
            [
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory.max",
                "/sys/fs/cgroup/x/memory.max",
                "/sys/fs/cgroup/x/y/memory.max",
            ]
        );
        if cfg!(target_os = "linux") {
            assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
        }
    }

    #[test]
    fn sizes_have_readable_units() {
        let words = [5e6, 999.6e6, 24e9, 1.5e14, 1e40].map(size_text);
        assert_eq!(words, ["5 MB", "1 GB", "24 GB", "150 TB", "1e19 ZB"]);
    }
}
