//! Which of the observers it is: by halves, where one alone is enough; else by leaving out one after the other.

/// The sets of hooks each of which is enough to make a difference, given that all together are. `differs` tries a
/// set out, which is dear.
pub(super) fn causes<E>(
    all: &[String],
    differs: &mut impl FnMut(&[String]) -> Result<bool, E>,
) -> Result<Vec<Vec<String>>, E> {
    let (mut rest, mut causes, mut innocent) = (all.to_vec(), Vec::new(), Vec::new());
    let mut differs = |set: &[String]| {
        if innocent.iter().any(|known: &Vec<String>| known == set) {
            return Ok(false);
        }
        let different = differs(set)?;
        if !different {
            innocent.push(set.to_vec());
        }
        Ok(different)
    };
    loop {
        let cause = narrowed(rest.clone(), &mut differs)?;
        rest.retain(|hook| !cause.contains(hook));
        causes.push(cause);
        if rest.is_empty() || !differs(&rest)? {
            return Ok(causes);
        }
    }
}

fn narrowed<E>(
    mut set: Vec<String>,
    differs: &mut impl FnMut(&[String]) -> Result<bool, E>,
) -> Result<Vec<String>, E> {
    while set.len() > 1 {
        let second = set.split_off(set.len() / 2);
        if differs(&set)? {
            continue;
        }
        if differs(&second)? {
            set = second;
            continue;
        }
        set.extend(second);
        return together(set, differs);
    }
    Ok(set)
}

/// No half is enough: leaves out whatever is not needed.
fn together<E>(
    mut set: Vec<String>,
    differs: &mut impl FnMut(&[String]) -> Result<bool, E>,
) -> Result<Vec<String>, E> {
    let mut at = 0;
    while at < set.len() && set.len() > 2 {
        let mut fewer = set.clone();
        fewer.remove(at);
        if differs(&fewer)? {
            set = fewer;
        } else {
            at += 1;
        }
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("h{number}")).collect()
    }

    /// The causes that are found when each of these sets is enough, and in how many trials.
    fn found(count: usize, guilty: &[&[usize]]) -> (Vec<Vec<String>>, usize) {
        let (mut trials, all) = (0, names(count));
        let mut differs = |set: &[String]| {
            trials += 1;
            let is_in = |hook: &usize| set.contains(&all[*hook]);
            Ok::<_, ()>(guilty.iter().any(|together| together.iter().all(is_in)))
        };
        let causes = causes(&all, &mut differs).expect("nothing fails");
        (causes, trials)
    }

    #[test]
    fn one_guilty_hook_is_found_wherever_it_stands() {
        for count in 1..=9 {
            for guilty in 0..count {
                let (causes, trials) = found(count, &[&[guilty]]);
                assert_eq!(causes, [[format!("h{guilty}")]], "{guilty} of {count}");
                let halvings = usize::BITS - (count - 1).leading_zeros();
                assert!(trials <= 2 * halvings as usize + 1, "{trials} trials for {count}");
            }
        }
    }

    #[test]
    fn hooks_that_are_guilty_only_together_are_named_together() {
        for (a, b) in [(0, 1), (0, 7), (3, 4), (6, 7)] {
            let (causes, _) = found(8, &[&[a, b]]);
            assert_eq!(causes, [[format!("h{a}"), format!("h{b}")]]);
        }
        assert_eq!(found(5, &[&[0, 2, 4]]).0, [["h0", "h2", "h4"]]);
        assert_eq!(found(2, &[&[0, 1]]).0, [["h0", "h1"]]);
    }

    #[test]
    fn several_that_are_each_guilty_are_all_named() {
        let (mut causes, _) = found(6, &[&[1], &[4], &[2, 3]]);
        causes.sort();
        assert_eq!(causes, [vec!["h1"], vec!["h2", "h3"], vec!["h4"]]);
    }
}
