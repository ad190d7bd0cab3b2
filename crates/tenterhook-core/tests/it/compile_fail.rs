//! Code that violates the contract does not compile, with a clear error.

use std::io::Write;
use std::process::Command;

/// The compiler whose messages `tests/ui/*.stderr` contains. Other versions word them differently.
const COMPILER: &str = "rustc 1.95.0 ";

#[test]
fn forbidden_uses_do_not_compile() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().expect("the compiler that built this runs");
    let version = String::from_utf8_lossy(&version.stdout);
    if !version.starts_with(COMPILER) {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI skips nothing, and these tests know {COMPILER}only, not {version}"
        );
        // Written to standard error directly, since the test harness captures the output of passing tests.
        let notice = format!(
            "\nSKIPPED: the compile-fail tests of tenterhook-core compare the words of {COMPILER}only, and this is {version}\n"
        );
        #[allow(clippy::disallowed_methods)] // the test harness captures `eprintln!`
        std::io::stderr().write_all(notice.as_bytes()).expect("standard error can be written to");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
