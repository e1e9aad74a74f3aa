//! Places of boxes, areas, arrows and labels, in pixels.

use anyhow::ensure;

use super::source::{Arrow, Cells, Kind, Picture};

/// Distance of the centres of neighbouring cells.
const PITCH: (i32, i32) = (250, 112);
/// Space between two boxes.
const GAP: (i32, i32) = (90, 44);
const MARGIN: i32 = 8;
/// Widths of an average letter, on the safe side: the reader's font is not known here.
const LETTER: f32 = 7.2;
const SMALL_LETTER: f32 = 6.4;
pub(super) const LINE: i32 = 16;
/// Distance of parallel arrows between the same boxes.
const PARALLEL: i32 = 40;

#[derive(Clone, Copy, Debug)]
pub(super) struct Rect {
    pub(super) left: i32,
    pub(super) top: i32,
    pub(super) right: i32,
    pub(super) bottom: i32,
}

#[derive(Debug)]
pub(super) struct Drawing {
    pub(super) size: (i32, i32),
    pub(super) areas: Vec<Rect>,
    pub(super) boxes: Vec<Rect>,
    pub(super) arrows: Vec<Path>,
}

/// An arrow: its corners, and the label with the place of its first line.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) corners: Vec<(i32, i32)>,
    pub(super) label: (i32, i32),
    /// Whether the label is centred on its place; otherwise it starts there.
    pub(super) centred: bool,
}

/// Computes the drawing; fails if something would be unreadable.
pub(super) fn arrange(picture: &Picture) -> anyhow::Result<Drawing> {
    let boxes: Vec<_> = picture.boxes.iter().map(|node| frame(node.cells, GAP)).collect();
    let areas: Vec<_> = picture.areas.iter().map(|area| frame(area.cells, (GAP.0 / 2, 2))).collect();
    let arrows: Vec<_> = (0..picture.arrows.len()).map(|index| path(picture, &boxes, index)).collect();
    let labels = picture.arrows.iter().zip(&arrows).map(|(arrow, path)| label(arrow, path));
    let all: Vec<_> = boxes.iter().chain(&areas).copied().chain(labels).collect();
    let right = all.iter().map(|rect| rect.right).max().unwrap_or_default();
    let bottom = all.iter().map(|rect| rect.bottom).max().unwrap_or_default();
    let drawing = Drawing { size: (right + MARGIN, bottom + MARGIN), areas, boxes, arrows };
    check_boxes(picture, &drawing)?;
    check_arrows(picture, &drawing)?;
    Ok(drawing)
}

/// Cells without half of the space on each side. A column of an area sticks out at the left, so the grid starts at its margin.
fn frame(cells: Cells, (x, y): (i32, i32)) -> Rect {
    let at = |index: u16, pitch: i32| MARGIN + i32::from(index) * pitch;
    Rect {
        left: at(cells.column, PITCH.0) + x / 2 - GAP.0 / 4,
        top: at(cells.row, PITCH.1) + y / 2,
        right: at(cells.column + cells.columns, PITCH.0) - x / 2 - GAP.0 / 4,
        bottom: at(cells.row + cells.rows, PITCH.1) - y / 2,
    }
}

impl Rect {
    pub(super) fn centre(self) -> (i32, i32) {
        (i32::midpoint(self.left, self.right), i32::midpoint(self.top, self.bottom))
    }

    fn crosses(self, other: Rect) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }
}

fn path(picture: &Picture, boxes: &[Rect], index: usize) -> Path {
    let arrow = &picture.arrows[index];
    let (from, to) = (boxes[arrow.from], boxes[arrow.to]);
    let shift = shift(&picture.arrows, index);
    let corners = corners(from, to, shift);
    let (start, next) = (corners[0], corners[1]);
    let middle = (i32::midpoint(start.0, next.0), i32::midpoint(start.1, next.1));
    let lines = i32::try_from(arrow.lines.len()).unwrap_or(i32::MAX);
    let centred = start.1 == next.1;
    let label = match centred {
        // All lines but the first are below a horizontal arrow.
        true => (middle.0, middle.1 - 6),
        false => (middle.0 + 7, middle.1 + 4 - (lines - 1) * LINE / 2),
    };
    Path { corners, label, centred }
}

/// Offset of an arrow among those between the same two boxes.
fn shift(arrows: &[Arrow], index: usize) -> i32 {
    let ends = |arrow: &Arrow| (arrow.from.min(arrow.to), arrow.from.max(arrow.to));
    let same: Vec<_> = (0..arrows.len()).filter(|&other| ends(&arrows[other]) == ends(&arrows[index])).collect();
    let place = same.iter().position(|&other| other == index).unwrap_or_default();
    let [place, count] = [place, same.len()].map(|number| i32::try_from(number).unwrap_or_default());
    (2 * place - count + 1) * PARALLEL / 2
}

/// A straight line if the boxes face each other, otherwise one with a corner that ends from above or below.
fn corners(from: Rect, to: Rect, shift: i32) -> Vec<(i32, i32)> {
    let overlap = |low: i32, high: i32| (low < high).then(|| i32::midpoint(low, high));
    if let Some(x) = overlap(from.left.max(to.left), from.right.min(to.right)) {
        let (start, end) = if from.bottom <= to.top { (from.bottom, to.top) } else { (from.top, to.bottom) };
        return vec![(x + shift, start), (x + shift, end)];
    }
    let (start, end) = if from.right <= to.left { (from.right, to.left) } else { (from.left, to.right) };
    if let Some(y) = overlap(from.top.max(to.top), from.bottom.min(to.bottom)) {
        return vec![(start, y + shift), (end, y + shift)];
    }
    let (x, y) = (to.centre().0 + shift, from.centre().1 + shift);
    vec![(start, y), (x, y), (x, if from.bottom <= to.top { to.top } else { to.bottom })]
}

fn check_boxes(picture: &Picture, drawing: &Drawing) -> anyhow::Result<()> {
    for (index, (node, rect)) in picture.boxes.iter().zip(&drawing.boxes).enumerate() {
        for line in &node.lines {
            ensure!(width(line, LETTER) <= rect.right - rect.left - 8, "too wide for the box {}: {line}", node.id);
        }
        let lines = i32::try_from(node.lines.len())?;
        ensure!(lines * LINE < rect.bottom - rect.top, "the box {} has too many lines", node.id);
        for (other, place) in picture.boxes.iter().zip(&drawing.boxes).take(index) {
            ensure!(!rect.crosses(*place), "the box {} crosses the box {}", node.id, other.id);
        }
    }
    Ok(())
}

fn check_arrows(picture: &Picture, drawing: &Drawing) -> anyhow::Result<()> {
    for (arrow, path) in picture.arrows.iter().zip(&drawing.arrows) {
        let name = format!("{} -> {}", picture.boxes[arrow.from].id, picture.boxes[arrow.to].id);
        for (node, rect) in picture.boxes.iter().zip(&drawing.boxes) {
            let crosses = path.corners.windows(2).any(|ends| line(ends[0], ends[1]).crosses(*rect));
            ensure!(!crosses, "the arrow {name} crosses the box {}", node.id);
            let is_note = matches!(node.kind, Kind::Note);
            let label = label(arrow, path);
            ensure!(is_note || !label.crosses(*rect), "the label of the arrow {name} crosses the box {}", node.id);
            ensure!(label.left >= 0, "the label of the arrow {name} is cut off");
        }
    }
    Ok(())
}

/// A line as a rectangle, without its ends, which touch boxes.
fn line(start: (i32, i32), end: (i32, i32)) -> Rect {
    let ((left, right), (top, bottom)) =
        ((start.0.min(end.0), start.0.max(end.0)), (start.1.min(end.1), start.1.max(end.1)));
    let thick = |low: i32, high: i32| if low == high { (low, high + 1) } else { (low + 1, high - 1) };
    let ((left, right), (top, bottom)) = (thick(left, right), thick(top, bottom));
    Rect { left, top, right, bottom }
}

fn label(arrow: &Arrow, path: &Path) -> Rect {
    let wide = arrow.lines.iter().map(|line| width(line, SMALL_LETTER)).max().unwrap_or_default();
    let left = if path.centred { path.label.0 - wide / 2 } else { path.label.0 };
    let lines = i32::try_from(arrow.lines.len()).unwrap_or(i32::MAX);
    let (top, bottom) = (path.label.1 - 10, path.label.1 + (lines - 1) * LINE + 3);
    Rect { left, top, right: left + wide, bottom }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "texts are short")]
fn width(text: &str, letter: f32) -> i32 {
    (text.chars().count() as f32 * letter) as i32
}
