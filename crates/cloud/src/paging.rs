//! Guard against paged listings that never end.

use std::collections::BTreeSet;

/// Maximum number of consecutive pages without a new item. Some are normal: a cloud that filters after paging returns empty pages.
const MAX_IDLE_PAGES: usize = 100;

/// Maximum number of pages of a list: a million items at a hundred per page.
const MAX_PAGES: usize = 10_000;

/// Detects a paged list that repeats a page token or does not end.
#[derive(Debug, Default)]
pub struct PageGuard {
    tokens: BTreeSet<String>,
    idle: usize,
}

impl PageGuard {
    /// Records a page with `new` items that were not on an earlier page, and the token of the next page. The error is the predicate
    /// of a sentence that begins with "the list".
    pub fn check(&mut self, token: &str, new: usize) -> Result<(), &'static str> {
        self.idle = if new == 0 { self.idle + 1 } else { 0 };
        match () {
            () if !self.tokens.insert(token.to_owned()) => Err("repeats a page token"),
            () if self.idle > MAX_IDLE_PAGES => Err("returns pages without new items"),
            () if self.tokens.len() >= MAX_PAGES => Err("has too many pages"),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of pages read, and the error, for a list with these tokens and this many new items on each page.
    fn read(token: impl Fn(usize) -> String, new: usize) -> (usize, &'static str) {
        let mut guard = PageGuard::default();
        (0..).find_map(|page| Some((page, guard.check(&token(page), new).err()?))).unwrap()
    }

    #[test]
    fn an_endless_list_is_an_error() {
        let numbered = |page: usize| page.to_string();
        assert_eq!(read(|_| "same".to_owned(), 1), (1, "repeats a page token"));
        assert_eq!(read(|page| (page % 7).to_string(), 1), (7, "repeats a page token"));
        assert_eq!(read(numbered, 0), (MAX_IDLE_PAGES, "returns pages without new items"));
        assert_eq!(read(numbered, 1), (MAX_PAGES - 1, "has too many pages"));
    }

    #[test]
    fn some_pages_without_items_are_accepted() {
        let mut guard = PageGuard::default();
        for page in 0..5000 {
            assert_eq!(guard.check(&page.to_string(), usize::from(page % 100 == 0)), Ok(()));
        }
    }
}
