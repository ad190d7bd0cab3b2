//! The cost of an event in instructions; shared by the example and `tests/cost.rs`.

use std::error::Error;
use std::fmt;
use std::path::Path;

#[path = "valgrind.rs"]
pub mod valgrind;

/// The body of the measured loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// An empty iteration.
    Empty,
    /// An event with n hooks, none of which receives it.
    Unwanted(usize),
    /// An event that is delivered to n hooks that do nothing.
    Delivered(usize),
    /// The same, with cost accounting.
    Accounted(usize),
}

impl Scenario {
    const EVENTS: [Scenario; 8] = [
        Scenario::Unwanted(0),
        Scenario::Unwanted(100),
        Scenario::Delivered(1),
        Scenario::Delivered(10),
        Scenario::Delivered(100),
        Scenario::Accounted(1),
        Scenario::Accounted(10),
        Scenario::Accounted(100),
    ];

    /// Makes a scenario from its name and the number of hooks.
    #[allow(dead_code)] // the test does not need it
    pub fn parse(name: &str, hooks: usize) -> Option<Scenario> {
        let all = [
            Scenario::Empty,
            Scenario::Unwanted(hooks),
            Scenario::Delivered(hooks),
            Scenario::Accounted(hooks),
        ];
        all.into_iter().find(|scenario| scenario.parts().0 == name)
    }

    fn parts(self) -> (&'static str, usize) {
        match self {
            Scenario::Empty => ("empty", 0),
            Scenario::Unwanted(hooks) => ("unwanted", hooks),
            Scenario::Delivered(hooks) => ("delivered", hooks),
            Scenario::Accounted(hooks) => ("accounted", hooks),
        }
    }
}

/// The costs of the scenarios per iteration, minus that of an empty loop.
pub struct Costs {
    unit: &'static str,
    rows: Vec<(Scenario, f64)>,
}

impl Costs {
    /// Measures all scenarios.
    pub fn new(
        unit: &'static str,
        mut measure: impl FnMut(Scenario) -> Result<f64, Box<dyn Error>>,
    ) -> Result<Costs, Box<dyn Error>> {
        let empty = measure(Scenario::Empty)?;
        let row = |scenario| measure(scenario).map(|cost| (scenario, cost - empty));
        Ok(Costs { unit, rows: Scenario::EVENTS.into_iter().map(row).collect::<Result<_, _>>()? })
    }

    /// The costs in instructions of the built example `cost`.
    pub fn counted(program: &Path) -> Result<Costs, Box<dyn Error>> {
        Costs::new("instructions", |scenario| per_iteration(program, scenario))
    }

    /// The cost of one scenario.
    #[allow(dead_code)] // the example does not need it
    pub fn of(&self, scenario: Scenario) -> Option<f64> {
        self.rows.iter().find(|(of, _)| *of == scenario).map(|(_, cost)| *cost)
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<12}{:>6}{:>16}{:>12}", "event", "hooks", self.unit, "per hook")?;
        for (scenario, cost) in &self.rows {
            let (name, hooks) = scenario.parts();
            write!(f, "{name:<12}{hooks:>6}{cost:>16.2}")?;
            match scenario {
                Scenario::Delivered(hooks) => writeln!(f, "{:>12.2}", cost / *hooks as f64)?,
                _ => writeln!(f)?,
            }
        }
        Ok(())
    }
}

/// Instructions per iteration, from the difference of two counts: the code before and after the loop is the same in both.
fn per_iteration(program: &Path, scenario: Scenario) -> Result<f64, Box<dyn Error>> {
    // Both numbers have five digits, so parsing them costs the same.
    const FEW: u64 = 10_000;
    const MANY: u64 = 30_000;
    let (name, hooks) = scenario.parts();
    let count = |iterations: u64| {
        valgrind::count(program, &[name.to_owned(), hooks.to_string(), iterations.to_string()])
    };
    let (few, many) = (count(FEW)?, count(MANY)?);
    let more = many.checked_sub(few).ok_or("fewer instructions for more iterations")?;
    Ok(more as f64 / (MANY - FEW) as f64)
}
