//! The text form of a picture.

use anyhow::{Context as _, bail, ensure};

/// A picture as its source describes it.
#[derive(Debug, Default)]
pub(super) struct Picture {
    pub(super) title: String,
    /// Alternative text.
    pub(super) text: String,
    pub(super) areas: Vec<Area>,
    pub(super) boxes: Vec<Node>,
    pub(super) arrows: Vec<Arrow>,
}

/// Part of the grid, counted in cells from the top left corner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cells {
    pub(super) column: u16,
    pub(super) row: u16,
    pub(super) columns: u16,
    pub(super) rows: u16,
}

/// A frame with a heading, behind the boxes.
#[derive(Debug)]
pub(super) struct Area {
    pub(super) cells: Cells,
    pub(super) label: String,
}

/// A box.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) cells: Cells,
    pub(super) kind: Kind,
    pub(super) lines: Vec<String>,
}

/// Owner of what a box shows, which decides its colour.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Bowline.
    Ours,
    /// Kubernetes.
    Cluster,
    Cloud,
    /// Text without a frame.
    Note,
}

/// A line between two boxes, by their index.
#[derive(Debug)]
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) dashed: bool,
    pub(super) lines: Vec<String>,
}

/// Reads a source; an error names the line.
pub(super) fn parse(text: &str) -> anyhow::Result<Picture> {
    let mut picture = Picture::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            picture.add(line).map_err(|error| anyhow::anyhow!("line {}: {error:#}", index + 1))?;
        }
    }
    ensure!(!picture.title.is_empty() && !picture.text.is_empty(), "a picture needs `title:` and `text:`");
    Ok(picture)
}

impl Picture {
    fn add(&mut self, line: &str) -> anyhow::Result<()> {
        let (head, tail) = line.split_once(':').unwrap_or((line, ""));
        let (mut words, tail) = (head.split_whitespace(), tail.trim());
        match words.next() {
            Some("title") => tail.clone_into(&mut self.title),
            Some("text") => tail.clone_into(&mut self.text),
            Some("area") => self.areas.push(Area { cells: cells(&mut words.peekable())?, label: tail.to_owned() }),
            Some("box") => {
                let id = words.next().context("a box needs an ID")?.to_owned();
                ensure!(self.boxes.iter().all(|known| known.id != id), "there is a box {id} already");
                let mut words = words.peekable();
                let cells = cells(&mut words)?;
                let kind = kind(words.next().context("a box needs a kind")?)?;
                self.boxes.push(Node { id, cells, kind, lines: lines(tail) });
            }
            Some("arrow") => {
                let words: Vec<_> = words.collect();
                let &[from, sign @ ("->" | "=>"), to] = words.as_slice() else { bail!("not an arrow: {head}") };
                let (from, to) = (self.index(from)?, self.index(to)?);
                self.arrows.push(Arrow { from, to, dashed: sign == "=>", lines: lines(tail) });
            }
            _ => bail!("not an element: {line}"),
        }
        Ok(())
    }

    fn index(&self, id: &str) -> anyhow::Result<usize> {
        self.boxes.iter().position(|known| known.id == id).with_context(|| format!("there is no box {id}"))
    }
}

/// Reads `COLUMN,ROW [COLUMNSxROWS]`.
fn cells<'a>(words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> anyhow::Result<Cells> {
    let place = words.next().context("the cell is missing")?;
    let (column, row) = pair(place, ',').with_context(|| format!("not a cell: {place}"))?;
    let extent = words.peek().and_then(|word| pair(word, 'x'));
    let (columns, rows) = extent.unwrap_or((1, 1));
    if extent.is_some() {
        words.next();
    }
    Ok(Cells { column, row, columns, rows })
}

fn pair(word: &str, separator: char) -> Option<(u16, u16)> {
    let (left, right) = word.split_once(separator)?;
    Some((left.parse().ok()?, right.parse().ok()?))
}

fn kind(word: &str) -> anyhow::Result<Kind> {
    Ok(match word {
        "ours" => Kind::Ours,
        "cluster" => Kind::Cluster,
        "cloud" => Kind::Cloud,
        "note" => Kind::Note,
        _ => bail!("not a kind of box: {word}"),
    })
}

fn lines(text: &str) -> Vec<String> {
    text.split('|').map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}
