//! The guard against lists that do not end.

use std::collections::BTreeSet;

/// Most pages in a row without a new item. Some are normal: a cloud that filters after it has cut its pages returns empty ones.
const MOST_IDLE: usize = 100;

/// Most pages of a list: at a hundred items each, these would be a million.
const MOST: usize = 10_000;

/// Guards the way through the pages of one list: it must come to an end.
#[derive(Debug, Default)]
pub struct PageGuard {
    tokens: BTreeSet<String>,
    idle: usize,
}

impl PageGuard {
    /// A page with `new` items that were not on an earlier one names this token for the next page. Fails with what is wrong
    /// with the list, to stand behind "the list".
    pub fn on(&mut self, token: &str, new: usize) -> Result<(), &'static str> {
        self.idle = if new == 0 { self.idle + 1 } else { 0 };
        match () {
            () if !self.tokens.insert(token.to_owned()) => Err("leads back to a page that was read already"),
            () if self.idle > MOST_IDLE => Err("goes on and on without another item"),
            () if self.tokens.len() >= MOST => Err("has more pages than any cloud has"),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of pages that are read of a list that names these tokens and shows this many new items on each page.
    fn read(token: impl Fn(usize) -> String, new: usize) -> (usize, &'static str) {
        let mut guard = PageGuard::default();
        (0..).find_map(|page| Some((page, guard.on(&token(page), new).err()?))).unwrap()
    }

    #[test]
    fn every_list_comes_to_an_end() {
        let numbered = |page: usize| page.to_string();
        assert_eq!(read(|_| "same".to_owned(), 1), (1, "leads back to a page that was read already"));
        assert_eq!(read(|page| (page % 7).to_string(), 1), (7, "leads back to a page that was read already"));
        assert_eq!(read(numbered, 0), (MOST_IDLE, "goes on and on without another item"));
        assert_eq!(read(numbered, 1), (MOST - 1, "has more pages than any cloud has"));
    }

    #[test]
    fn some_pages_without_an_item_are_normal() {
        let mut guard = PageGuard::default();
        for page in 0..5000 {
            assert_eq!(guard.on(&page.to_string(), usize::from(page % 100 == 0)), Ok(()));
        }
    }
}
