//! Counting instructions with valgrind's callgrind. Unlike times, counts do not depend on the load of the machine. Also used by
//! examples of other crates.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// The version of the installed valgrind, or why it does not run.
pub fn version() -> Result<String, String> {
    let unusable =
        |why: &dyn fmt::Display| format!("valgrind, which counts instructions, does not run: {why}");
    let asked = Command::new("valgrind").arg("--version").output();
    let said = asked.map_err(|error| unusable(&error))?;
    if !said.status.success() {
        return Err(unusable(&said.status));
    }
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

/// The instructions of one run of a program.
pub fn count(program: &Path, arguments: &[String]) -> Result<u64, Box<dyn Error>> {
    count_into(program, arguments, Path::new("/dev/null"))
}

/// The same, with the call graph in a file.
pub fn count_into(program: &Path, arguments: &[String], profile: &Path) -> Result<u64, Box<dyn Error>> {
    const TOTAL: &str = "Collected : ";
    let mut run = Command::new("valgrind");
    run.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", profile.display()));
    run.arg(program).args(arguments);
    // Waiting threads execute a varying number of instructions.
    let ran = run.env_remove("VALGRIND_OPTS").env("RAYON_NUM_THREADS", "1").output()?;
    let said = String::from_utf8_lossy(&ran.stderr);
    let total = said.lines().find_map(|line| line.split_once(TOTAL)).map(|(_, total)| total.trim().parse());
    match total {
        Some(Ok(total)) if ran.status.success() => Ok(total),
        _ => Err(format!("{run:?} did not count ({}): {said}", ran.status).into()),
    }
}
