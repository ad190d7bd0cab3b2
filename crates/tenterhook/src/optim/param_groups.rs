//! Assigns parameters to optimizers and groups.

use tenterhook_core::{BoxError, Pattern};

use super::{Engine, Group, Optimizer, ParamInfo};

/// By parameter of the model: its optimizer, and its group there (0 has the remaining parameters).
pub(super) type Owners = Vec<Option<(usize, usize)>>;

/// Finds every trained parameter's optimizer and group. A pattern without a match is an error, and so is a
/// parameter that two optimizers match.
pub(super) fn owners<E: Engine>(
    params: &[ParamInfo],
    optimizers: &[Optimizer<E>],
) -> Result<Owners, BoxError> {
    let mut owners: Owners = vec![None; params.len()];
    for (index, optimizer) in optimizers.iter().enumerate() {
        let only = matching(&optimizer.only, params, &format!("optimizer `{}`", optimizer.name))?;
        let groups: Vec<_> = optimizer
            .groups
            .iter()
            .map(|group| matching(&group.patterns, params, &describe(optimizer, group)))
            .collect::<Result<_, _>>()?;
        for (at, param) in params.iter().enumerate() {
            let wanted = optimizer.only.is_empty() || only[at];
            if !wanted || !param.trained {
                continue;
            }
            if let Some((other, _)) = owners[at] {
                let (name, other) = (&param.name, &optimizers[other].name);
                return Err(format!(
                    "parameter `{name}` belongs to both optimizers `{other}` and `{}`; give each its own with `only`",
                    optimizer.name
                )
                .into());
            }
            let group = groups.iter().position(|matching| matching[at]).map_or(0, |group| group + 1);
            owners[at] = Some((index, group));
        }
    }
    Ok(owners)
}

fn describe<E: Engine>(optimizer: &Optimizer<E>, group: &Group<E>) -> String {
    format!("group `{}` of optimizer `{}`", group.name, optimizer.name)
}

/// By parameter, whether one of the patterns matches it.
fn matching(patterns: &[String], params: &[ParamInfo], whose: &str) -> Result<Vec<bool>, BoxError> {
    let mut matching = vec![false; params.len()];
    for text in patterns {
        let pattern: Pattern = text.parse().map_err(|error| format!("{whose}: {error}"))?;
        let mut any = false;
        for (matching, param) in matching.iter_mut().zip(params) {
            let matches = pattern.matches(&param.name);
            *matching |= matches;
            any |= matches;
        }
        if !any {
            let names: Vec<_> = params.iter().map(|param| param.name.as_str()).collect();
            return Err(format!(
                "{whose}: the pattern `{text}` matches no parameter (`*` stays within one part of a name, \
                 `**` goes across: `**.bias`); there are: {}",
                names.join(", ")
            )
            .into());
        }
    }
    Ok(matching)
}
