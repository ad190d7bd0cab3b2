//! Which optimizer and which group every parameter belongs to.

use tenterhook_core::{BoxError, Pattern};

use super::{Engine, Group, Optimizer, ParamFacts};

/// By parameter of the model: the optimizer it belongs to, and the group there (0 is the rest).
pub(super) type Owners = Vec<Option<(usize, usize)>>;

/// Finds every trained parameter's optimizer and group. A pattern that chooses nothing is a mistake,
/// and so is a parameter that two optimizers want.
pub(super) fn owners<E: Engine>(
    facts: &[ParamFacts],
    optimizers: &[Optimizer<E>],
) -> Result<Owners, BoxError> {
    let mut owners: Owners = vec![None; facts.len()];
    for (index, optimizer) in optimizers.iter().enumerate() {
        let only = chosen(&optimizer.only, facts, &format!("optimizer `{}`", optimizer.name))?;
        let groups: Vec<_> = optimizer
            .groups
            .iter()
            .map(|group| chosen(&group.patterns, facts, &describe(optimizer, group)))
            .collect::<Result<_, _>>()?;
        for at in 0..facts.len() {
            let wanted = optimizer.only.is_empty() || only[at];
            if !wanted || !facts[at].trained {
                continue;
            }
            if let Some((other, _)) = owners[at] {
                let (name, other) = (&facts[at].name, &optimizers[other].name);
                return Err(format!(
                    "parameter `{name}` is wanted by the optimizers `{other}` and `{}`; give each its own with `only`",
                    optimizer.name
                )
                .into());
            }
            let group = groups.iter().position(|chosen| chosen[at]).map_or(0, |group| group + 1);
            owners[at] = Some((index, group));
        }
    }
    Ok(owners)
}

fn describe<E: Engine>(optimizer: &Optimizer<E>, group: &Group<E>) -> String {
    format!("group `{}` of optimizer `{}`", group.name, optimizer.name)
}

/// By parameter, whether one of the patterns chooses it.
fn chosen(patterns: &[String], facts: &[ParamFacts], whose: &str) -> Result<Vec<bool>, BoxError> {
    let mut chosen = vec![false; facts.len()];
    for text in patterns {
        let pattern: Pattern = text.parse().map_err(|error| format!("{whose}: {error}"))?;
        let mut any = false;
        for (chosen, facts) in chosen.iter_mut().zip(facts) {
            let matches = pattern.matches(&facts.name);
            *chosen |= matches;
            any |= matches;
        }
        if !any {
            let names: Vec<_> = facts.iter().map(|facts| facts.name.as_str()).collect();
            return Err(format!(
                "{whose}: the pattern `{text}` chooses no parameter (`*` stays within one part of a name, \
                 `**` goes across: `**.bias`); there are: {}",
                names.join(", ")
            )
            .into());
        }
    }
    Ok(chosen)
}
