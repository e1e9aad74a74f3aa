//! Paged lists.

use std::future::Future;

use bowline_cloud::{Error, ErrorKind, PageGuard, Result};

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// Items of this page.
    pub items: Vec<T>,
    /// Token of the next page; `None` on the last one.
    pub next: Option<String>,
}

/// Reads all pages of a list sequentially; `page` reads the page of a token. A list that does not end is an error of `operation`.
pub async fn all_pages<T, F>(operation: &str, mut page: impl FnMut(Option<String>) -> F) -> Result<Vec<T>>
where
    F: Future<Output = Result<Page<T>>>,
{
    let (mut items, mut guard, mut token) = (Vec::new(), PageGuard::default(), None);
    loop {
        let mut read = page(token).await?;
        let new = read.items.len();
        items.append(&mut read.items);
        let Some(next) = read.next else { return Ok(items) };
        let endless = |why| Error::new(ErrorKind::Unexpected, operation, format!("the list {why}"));
        guard.check(&next, new).map_err(endless)?;
        token = Some(next);
    }
}
