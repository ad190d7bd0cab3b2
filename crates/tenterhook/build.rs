//! Passes the compiler's version to the crate, for `run.json`.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).arg("--version").output();
    let version = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=TENTERHOOK_RUSTC={}", version.unwrap_or_else(|_| "unknown".to_owned()));
}
