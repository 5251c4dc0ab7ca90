//! Finds the items of an input that make an attempt fail, by trying halves of the input (bisection).

/// The result of the largest successful attempt, and the items that it left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolated<T, R> {
    /// The result of the largest successful attempt; `None` if attempts fail even without any item, so the items are
    /// not the cause.
    pub best: Option<R>,
    pub left_out: Vec<T>,
}

/// Adds halves of the remaining items to the items that already succeeded, and tries the result. Finding one faulty
/// item among `n` takes about `2·log2(n)` attempts. After `attempts_max` attempts, all untried items are left out.
pub fn isolate<T: Clone, R>(
    items: &[T],
    attempts_max: usize,
    mut attempt: impl FnMut(&[T]) -> Option<R>,
) -> Isolated<T, R> {
    let mut best = attempt(&[]);
    if best.is_none() {
        return Isolated { best, left_out: items.to_vec() };
    }
    let mut sound: Vec<usize> = Vec::new();
    let mut left_out: Vec<usize> = Vec::new();
    let (first, second) = (0..items.len() / 2, items.len() / 2..items.len());
    let mut untried = vec![second, first];
    for _ in 1..attempts_max {
        let Some(chunk) = untried.pop() else { break };
        if chunk.is_empty() {
            continue;
        }
        let mut tried: Vec<usize> = sound.iter().copied().chain(chunk.clone()).collect();
        tried.sort_unstable();
        let chosen: Vec<T> = tried.iter().map(|position| items[*position].clone()).collect();
        match attempt(&chosen) {
            Some(result) => {
                best = Some(result);
                sound = tried;
            }
            None if chunk.len() == 1 => left_out.extend(chunk),
            None => {
                let middle = chunk.start + chunk.len() / 2;
                untried.push(middle..chunk.end);
                untried.push(chunk.start..middle);
            }
        }
    }
    left_out.extend(untried.into_iter().flatten());
    left_out.sort_unstable();
    Isolated { best, left_out: left_out.into_iter().map(|position| items[position].clone()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(count: u32, bad: &[u32], attempts_max: usize) -> (Option<usize>, Vec<u32>, usize) {
        let items: Vec<u32> = (0..count).collect();
        let mut attempts = 0;
        let isolated = isolate(&items, attempts_max, |kept| {
            attempts += 1;
            (!kept.iter().any(|item| bad.contains(item))).then_some(kept.len())
        });
        (isolated.best, isolated.left_out, attempts)
    }

    #[test]
    fn bad_items_are_found_and_others_kept() {
        for bad in [&[][..], &[0], &[999], &[500], &[3, 700], &[1, 2, 3]] {
            let (best, left_out, attempts) = found(1000, bad, 100);
            assert_eq!((best, &left_out[..]), (Some(1000 - bad.len()), bad));
            assert!(attempts <= 3 + 21 * bad.len(), "{attempts} for {bad:?}");
        }
        assert_eq!(found(1, &[0], 10), (Some(0), vec![0], 2));
    }

    #[test]
    fn attempts_are_bounded() {
        let (best, left_out, attempts) = found(1000, &[10, 400], 6);
        assert!(attempts <= 6, "{attempts}");
        assert!(left_out.contains(&10) && left_out.contains(&400));
        assert_eq!(best.map(|kept| kept + left_out.len()), Some(1000));
    }

    #[test]
    fn all_items_are_left_out_if_empty_attempt_fails() {
        let isolated = isolate(&[1, 2], 10, |_| None::<()>);
        assert_eq!(isolated, Isolated { best: None, left_out: vec![1, 2] });
    }
}
