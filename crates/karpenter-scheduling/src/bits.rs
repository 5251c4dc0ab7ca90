//! A set of small integers.

use smallvec::SmallVec;

/// A set of small integers. Up to 128 members are stored without an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Bits {
    words: SmallVec<[u64; 2]>,
}

impl Bits {
    pub(crate) fn empty(size: usize) -> Self {
        Self { words: SmallVec::from_elem(0, size.div_ceil(64)) }
    }

    pub(crate) fn insert(&mut self, index: usize) {
        self.words[index / 64] |= 1 << (index % 64);
    }

    /// Inserts a member that may lie beyond the current size of the set.
    pub(crate) fn extend_to(&mut self, index: usize) {
        if index / 64 >= self.words.len() {
            self.words.resize(index / 64 + 1, 0);
        }
        self.insert(index);
    }

    pub(crate) fn remove(&mut self, index: usize) {
        if let Some(word) = self.words.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    /// The members from `64 * position` on, as the bits of one word.
    pub(crate) fn word(&self, position: usize) -> u64 {
        self.words.get(position).copied().unwrap_or(0)
    }

    pub(crate) fn retain(&mut self, others: &Self) {
        for (position, word) in self.words.iter_mut().enumerate() {
            *word &= others.word(position);
        }
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(position, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                Some(position * 64 + bit)
            })
        })
    }

    /// The only member, if there is exactly one.
    pub(crate) fn single(&self) -> Option<usize> {
        let mut members = self.iter();
        let first = members.next()?;
        members.next().is_none().then_some(first)
    }

    pub(crate) fn is_superset(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & b == *b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iteration_is_ascending() {
        let mut bits = Bits::empty(130);
        for index in [0, 63, 64, 129] {
            bits.insert(index);
        }
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert_eq!(bits.len(), 4);
        assert!(bits.contains(129) && !bits.contains(128) && !bits.is_empty());
        assert_eq!(bits.single(), None);
        let mut one = Bits::empty(130);
        one.insert(64);
        assert_eq!(one.single(), Some(64));
        assert!(bits.is_superset(&one) && !one.is_superset(&bits));
    }
}
