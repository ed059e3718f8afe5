//! A bounded map that forgets what was not used for longest.

use std::collections::BTreeMap;

pub(super) struct Lru<V> {
    room: usize,
    uses: u64,
    /// By key: when it was used last.
    items: BTreeMap<u128, (u64, V)>,
    by_use: BTreeMap<u64, u128>,
}

impl<V> Lru<V> {
    pub fn new(room: usize) -> Self {
        Self { room, uses: 0, items: BTreeMap::new(), by_use: BTreeMap::new() }
    }

    /// The value of a key, made if there is none.
    pub fn entry(&mut self, key: u128, make: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        let now = self.uses;
        if self.items.len() >= self.room
            && !self.items.contains_key(&key)
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.items.remove(&oldest);
        }
        let (used, value) = self.items.entry(key).or_insert_with(|| (now, make()));
        self.by_use.remove(used);
        *used = now;
        self.by_use.insert(now, key);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut lru = Lru::new(2);
        *lru.entry(1, || 10) += 1;
        lru.entry(2, || 20);
        assert_eq!(*lru.entry(1, || 0), 11);
        lru.entry(3, || 30);
        assert_eq!(*lru.entry(1, || 0), 11);
        assert_eq!(*lru.entry(2, || 0), 0);
        assert_eq!(lru.items.len(), 2);
        assert_eq!(lru.by_use.len(), 2);
    }
}
