//! Pictures of the documentation: `docs/pictures/NAME.txt` is the source of `NAME.svg`, which `cargo xtask generate` writes.
//!
//! ```text
//! source::parse ──► Picture: boxes in cells of a grid, areas, arrows ──► layout ──► svg::render
//! ```
//!
//! A source has one element per line; `|` separates lines of a text:
//!
//! ```text
//! title: The path of a Node
//! text: What the picture shows, for readers who cannot see it.
//! area 0,0 2x1: Bowline
//! box queue 0,0 ours: Queue | one key per Node
//! box cloud 1,0 1x2 cloud: Cloud
//! arrow queue -> cloud: list servers
//! arrow cloud => queue
//! ```
//!
//! A cell is `COLUMN,ROW`, an extent `COLUMNSxROWS`. `->` is a solid arrow, `=>` a dashed one. Pictures that cannot be read are errors:
//! texts wider than their place, and arrows and labels that cross a box.

mod layout;
mod source;
mod svg;

use std::path::Path;

use anyhow::Context as _;

use crate::tree;

const FOLDER: &str = "docs/pictures/";

/// Returns path and content of each picture.
pub(crate) fn all(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let sources = tree::read(root, |path| path.starts_with(FOLDER) && path.ends_with(".txt"))?;
    let picture = |(path, text): (String, String)| {
        let svg = render(&text).with_context(|| path.clone())?;
        Ok((path.replace(".txt", ".svg"), svg))
    };
    sources.into_iter().map(picture).collect()
}

fn render(text: &str) -> anyhow::Result<String> {
    let picture = source::parse(text)?;
    let drawing = layout::arrange(&picture)?;
    Ok(svg::render(&picture, &drawing))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const HEAD: &str =
        "title: T\ntext: D\nbox a 0,0 ours: A\nbox b 1,0 ours: B\nbox c 2,0 cloud: C\nbox d 1,1 cluster: D\n";

    fn error(more: &str) -> String {
        format!("{:#}", render(&format!("{HEAD}{more}")).unwrap_err())
    }

    #[test]
    fn a_picture_has_its_texts_escaped_and_colours_for_light_and_dark() {
        let svg = render(&format!("{HEAD}arrow a -> b: <x> & y\narrow b => d\n")).unwrap();
        assert!(svg.contains("&lt;x&gt; &amp; y") && svg.contains("<title>T</title>"), "{svg}");
        assert!(svg.contains("@media (prefers-color-scheme: dark)"), "{svg}");
        assert_eq!(svg.matches("class=\"arrow dashed\"").count(), 1, "{svg}");
    }

    #[test]
    fn an_arrow_through_a_box_is_an_error() {
        assert!(error("arrow a -> c").contains("the arrow a -> c crosses the box b"));
    }

    #[test]
    fn a_text_that_is_too_wide_is_an_error() {
        let label = "a label that is far too long for a gap";
        assert!(error(&format!("arrow a -> b: {label}")).contains("crosses the box"));
        assert!(error("box e 0,2 ours: more text than a box of one column has").contains("too wide"));
    }

    #[test]
    fn an_error_names_the_line_and_what_is_wrong() {
        assert_eq!(error("arrow a -> nowhere"), "line 7: there is no box nowhere");
        assert_eq!(error("box a 3,0 ours: A"), "line 7: there is a box a already");
        assert_eq!(error("box e 0,0 ours: E"), "the box e crosses the box a");
        assert_eq!(error("circle"), "line 7: not an element: circle");
        assert_eq!(error("box e 0,2 theirs: E"), "line 7: not a kind of box: theirs");
    }
}
