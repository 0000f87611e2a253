//! An ID explained to a person: its bits drawn, its fields listed, its age.
//!
//! ```text
//! ID 209578384538226732 of generator orders_ids
//!
//!   0  | 00000101110100010010010011011100010101100 | 0000000101 | 000000101100
//!   63 | 62                                     22 | 21      12 | 11         0
//!      | time                                      | worker     | sequence
//! ```
//!
//! ASCII, so that it lines up in every terminal and log, and at most
//! [`COLUMNS`] wide: drawings that are wider go on in further rows.

use jiff::civil::DateTime;
use jiff::{Span, Timestamp, Unit, tz::Offset};

use super::duration::duration_text;
use super::id::{SnowflakeId, UnixMillis};
use super::label::{Decoded, Field, Label};
use super::layout::{Disorder, LayoutError, Role};

/// The most columns of a line, but for a title that is longer.
pub const COLUMNS: usize = 100;

const INDENT: &str = "  ";
const BAR: &str = " | ";
/// Names up to this length have a column in the table, longer ones a line; and
/// the most room for a word of a name in the drawing.
const NAME_COLUMNS: usize = 24;
/// The most lines of a name in the drawing.
const NAME_LINES: usize = 3;

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// The calendar repeats itself after so many years, and milliseconds.
const CYCLE_YEARS: i64 = 400;
const CYCLE: i64 = 146_097 * DAY.cast_signed();

/// What there is to know of an ID of the generator that `title` names: lines of
/// ASCII without trailing white space, none longer than [`COLUMNS`], if `title`
/// is so; it is not cut.
///
/// # Errors
/// As [`Label::decode`], if no generator with this label can have made the ID.
pub fn explain(
    id: SnowflakeId,
    label: &Label,
    title: &str,
    now: UnixMillis,
) -> Result<String, LayoutError> {
    let decoded = label.decode(id)?;
    let created = label.layout().instant_of(decoded.fields.tick);
    let groups = groups(id, label, &decoded, created);
    let mut text = Text::default();
    let first = format!("ID {} of {title}", id.get());
    if first.chars().count() > COLUMNS {
        text.line(&format!("ID {} of", id.get()));
        text.line(title);
    } else {
        text.line(&first);
    }
    let (drawing, keys) = draw(&groups);
    for row in drawing {
        text.line("");
        for line in row {
            text.line(&line);
        }
    }
    text.line("");
    table(&mut text, &groups, &keys);
    text.line("");
    for (what, is) in summary(label, &decoded, created, now) {
        text.wrapped(&format!("{INDENT}{what:<9}  "), &is);
    }
    Ok(text.0)
}

/// Some neighbouring bits of an ID: a field, or what is above all fields.
struct Group<'a> {
    name: &'a str,
    is_field: bool,
    high: u32,
    /// As they are, high to low.
    digits: String,
    /// What they stand for: of a reversed time, the tick.
    value: u64,
    note: String,
}

impl Group<'_> {
    fn low(&self) -> usize {
        (self.high as usize + 1).saturating_sub(self.digits.len())
    }

    /// Highest and lowest position, under the bits they belong to if those are
    /// wide enough.
    fn positions(&self) -> String {
        let (high, low) = (self.high.to_string(), self.low().to_string());
        if self.digits.len() == 1 {
            high
        } else if self.digits.len() <= high.len() + low.len() {
            format!("{high}-{low}")
        } else {
            format!("{high}{low:>0$}", self.digits.len() - high.len())
        }
    }

    fn range(&self) -> String {
        if self.digits.len() == 1 {
            self.high.to_string()
        } else {
            format!("{}-{}", self.high, self.low())
        }
    }

    /// The column of the drawing with this for a name.
    fn cell(&self, name: Vec<String>) -> Cell {
        let mut lines = vec![self.digits.clone(), self.positions()];
        lines.extend(name);
        let width = lines.iter().map(String::len).max().unwrap_or(0);
        Cell { lines, width }
    }

    /// As wide as bits and positions want it.
    fn narrow(&self) -> usize {
        self.digits.len().max(self.positions().len())
    }
}

fn groups<'a>(
    id: SnowflakeId,
    label: &'a Label,
    decoded: &Decoded<'_>,
    created: UnixMillis,
) -> Vec<Group<'a>> {
    let bits = id.get().cast_unsigned();
    let reversed = is_reversed(bits, label);
    let workers = workers(label).count();
    let mut groups = Vec::new();
    let unused = 64 - label.layout().width() as usize;
    if unused > 0 {
        groups.push(Group {
            name: "unused",
            is_field: false,
            high: 63,
            digits: "0".repeat(unused),
            value: 0,
            note: String::new(),
        });
    }
    for (field, (_, value)) in label.fields().iter().zip(&decoded.named) {
        let note = match field.role {
            Role::Fixed(_) => "fixed".to_string(),
            Role::Worker if workers == 1 && field.name != "worker" => "worker ID".to_string(),
            _ if field.is_time() && reversed => {
                format!("{}, bits reversed", instant_text(created))
            }
            _ if field.is_time() => instant_text(created),
            _ => String::new(),
        };
        groups.push(Group {
            name: &field.name,
            is_field: true,
            high: field.shift + field.bits - 1,
            digits: format!("{:01$b}", field.of(bits), field.bits as usize),
            value: *value,
            note,
        });
    }
    groups
}

fn is_reversed(bits: u64, label: &Label) -> bool {
    label.fields().iter().any(|field| match field.role {
        Role::TimeReversed => true,
        Role::Mode(_) => field.of(bits) == 0,
        _ => false,
    })
}

fn workers(label: &Label) -> impl Iterator<Item = &Field> {
    label.fields().iter().filter(|f| f.role == Role::Worker)
}

/// A group in the drawing: bits, positions, and its name in one line or more.
struct Cell {
    lines: Vec<String>,
    width: usize,
}

/// How the drawing names fields that are narrower than their names.
#[derive(Clone, Copy)]
enum Naming {
    /// With more room.
    Whole,
    /// With more room, but broken before underscores; by a key if that would
    /// be wide or high.
    Broken,
    /// By a key that the table has, too.
    Key,
}

/// The drawing by rows and lines, and for each group its key, if it has one.
/// More room for names is worth another row, but no more.
fn draw(groups: &[Group<'_>]) -> (Vec<Vec<String>>, Vec<String>) {
    let whole = draw_as(groups, Naming::Whole);
    if whole.0.len() == 1 {
        return whole;
    }
    let broken = draw_as(groups, Naming::Broken);
    if broken.0.len() <= 2 {
        return broken;
    }
    draw_as(groups, Naming::Key)
}

fn draw_as(groups: &[Group<'_>], naming: Naming) -> (Vec<Vec<String>>, Vec<String>) {
    let mut keys = Vec::new();
    let mut count = 0;
    let cells: Vec<_> = groups
        .iter()
        .map(|group| {
            let (name, key) = match name_lines(group, naming) {
                Some(name) => (name, String::new()),
                None => {
                    count += 1;
                    (vec![format!("#{count}")], format!("#{count}"))
                }
            };
            keys.push(key);
            group.cell(name)
        })
        .collect();
    (rows(cells).iter().map(|row| row_lines(row)).collect(), keys)
}

/// A name for the drawing; `None` if it takes a key.
fn name_lines(group: &Group<'_>, naming: Naming) -> Option<Vec<String>> {
    if group.name.len() <= group.narrow() {
        return Some(vec![group.name.to_string()]);
    }
    // Bits without a meaning need no room for a name.
    if !group.is_field {
        return Some(Vec::new());
    }
    match naming {
        Naming::Whole => Some(vec![group.name.to_string()]),
        Naming::Broken => {
            broken(group.name, group.narrow()).filter(|lines| lines.len() <= NAME_LINES)
        }
        Naming::Key => None,
    }
}

/// A name in lines of `width`, or what its longest word takes; `None` if that
/// is a lot.
fn broken(name: &str, width: usize) -> Option<Vec<String>> {
    let words = name.split('_').enumerate().map(|(at, word)| {
        let underscore = if at == 0 { "" } else { "_" };
        format!("{underscore}{word}")
    });
    let words: Vec<_> = words.collect();
    let longest = words.iter().map(String::len).max().unwrap_or(0);
    let width = width.max(longest);
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() <= width => line.push_str(&word),
            _ => lines.push(word),
        }
    }
    (longest <= NAME_COLUMNS).then_some(lines)
}

/// As many cells in a row as have room.
fn rows(cells: Vec<Cell>) -> Vec<Vec<Cell>> {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut used = 0;
    for cell in cells {
        let more = BAR.len() + cell.width;
        match rows.last_mut() {
            Some(row) if used + more <= COLUMNS => {
                used += more;
                row.push(cell);
            }
            _ => {
                used = INDENT.len() + cell.width;
                rows.push(vec![cell]);
            }
        }
    }
    rows
}

fn row_lines(row: &[Cell]) -> Vec<String> {
    let height = row.iter().map(|cell| cell.lines.len()).max().unwrap_or(0);
    let line = |at| {
        let cells = row.iter().map(|cell| {
            let text = cell.lines.get(at).map_or("", String::as_str);
            format!("{text:<0$}", cell.width)
        });
        format!("{INDENT}{}", cells.collect::<Vec<_>>().join(BAR))
    };
    (0..height).map(line).collect()
}

fn table(text: &mut Text, groups: &[Group<'_>], keys: &[String]) {
    let widest = |of: &dyn Fn(&Group<'_>) -> usize, least: usize| {
        groups.iter().map(of).fold(least, usize::max)
    };
    let name_width = widest(
        &|group| match group.name.len() {
            length if length <= NAME_COLUMNS => length,
            _ => 0,
        },
        "field".len(),
    );
    let value_width = widest(&|group| group.value.to_string().len(), "value".len());
    let key_width = match keys.iter().map(String::len).max() {
        None | Some(0) => 0,
        Some(length) => length + 2,
    };
    let start = |key: &str, name: &str| format!("{INDENT}{key:<key_width$}{name:<name_width$}");
    let rest = |bits: &str, value: &str| format!("  {bits:<5}  {value:>value_width$}  ");

    text.line(&(start("", "field") + &rest("bits", "value")));
    for (at, group) in groups.iter().enumerate() {
        let key = keys.get(at).map_or("", String::as_str);
        let mut start_of_line = start(key, group.name);
        if group.name.len() > name_width {
            text.line(&start_of_line);
            start_of_line = start("", "");
        }
        let rest = rest(&group.range(), &group.value.to_string());
        text.wrapped(&(start_of_line + &rest), &group.note);
    }
}

/// What the fields do not say one by one.
fn summary(
    label: &Label,
    decoded: &Decoded<'_>,
    created: UnixMillis,
    now: UnixMillis,
) -> Vec<(&'static str, String)> {
    let layout = label.layout();
    let at = |instant| format!("{}, {}", instant_text(instant), relative(instant, now));
    let mut summary = vec![("created", at(created))];
    let names: Vec<_> = workers(label).map(|field| field.name.as_str()).collect();
    if names.len() > 1 {
        let names = names.join(", ");
        summary.push(("worker ID", format!("{} of {names}", decoded.fields.worker)));
    }
    summary.push((
        "epoch",
        format!(
            "{}, ticks of {}",
            instant_text(layout.epoch()),
            duration_text(layout.tick_millis())
        ),
    ));
    // The last tick is never issued.
    let end = layout.instant_of(layout.last_tick());
    let lasts = if now < end {
        let left = elapsed(now, end);
        format!("until {}, another {left}", instant_text(end))
    } else {
        format!("over since {}", at(end))
    };
    summary.push(("layout", lasts));
    let sign = match layout.disorder() {
        Some(Disorder::NegativeFrom(turn)) if now < turn => {
            Some(format!("IDs turn negative at {}", at(turn)))
        }
        Some(Disorder::NegativeFrom(turn)) => {
            Some(format!("IDs have been negative since {}", at(turn)))
        }
        _ if !layout.can_be_negative() => None,
        _ if matches!(
            label.fields().first(),
            Some(Field {
                role: Role::Fixed(_),
                ..
            })
        ) =>
        {
            Some("all IDs are negative".to_string())
        }
        _ => Some("some IDs are negative".to_string()),
    };
    summary.extend(sign.map(|sign| ("sign", sign)));
    summary
}

/// An instant in UTC, moved by whole repetitions of the calendar to 1970 or up
/// to 400 years later; and the years to add. jiff ends in 9999, layouts do not.
fn civil(at: i64) -> (i64, DateTime) {
    let within = Timestamp::from_millisecond(at.rem_euclid(CYCLE)).unwrap_or_default();
    (
        at.div_euclid(CYCLE) * CYCLE_YEARS,
        Offset::UTC.to_datetime(within),
    )
}

/// In UTC, with milliseconds; years beyond 9999 just have more digits.
fn instant_text(at: UnixMillis) -> String {
    let (years, civil) = civil(at.get());
    let year = years + i64::from(civil.year());
    let rest = civil.strftime("%m-%d %H:%M:%S%.3f");
    format!("{year:04}-{rest} UTC")
}

fn relative(at: UnixMillis, now: UnixMillis) -> String {
    if at == now {
        "now".to_string()
    } else if at < now {
        format!("{} ago", elapsed(at, now))
    } else {
        format!("in {}", elapsed(now, at))
    }
}

/// From an instant to a later one, in its two largest units; years are those
/// of the calendar.
fn elapsed(from: UnixMillis, to: UnixMillis) -> String {
    let millis = to.get().abs_diff(from.get());
    let cycles = millis / CYCLE.cast_unsigned();
    let start = from.get().rem_euclid(CYCLE);
    let rest = (millis % CYCLE.cast_unsigned()).cast_signed();
    let ((_, a), (carry, b)) = (civil(start), civil(start + rest));
    let b = b.saturating_add(Span::new().years(carry));
    let years = a.until((Unit::Year, b)).unwrap_or_default().get_years();
    let birthday = a.saturating_add(Span::new().years(years));
    let days = birthday
        .until((Unit::Day, b))
        .unwrap_or_default()
        .get_days();
    let years = i64::from(years).unsigned_abs() + cycles * CYCLE_YEARS.unsigned_abs();

    let (large, small) = if years > 0 {
        (
            counted(years, "year"),
            counted(u64::from(days.unsigned_abs()), "day"),
        )
    } else {
        two_units(millis)
    };
    [large, small]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ")
}

fn two_units(millis: u64) -> (Option<String>, Option<String>) {
    let short = |number: u64, unit: &str| (number > 0).then(|| format!("{number} {unit}"));
    if millis >= DAY {
        (
            counted(millis / DAY, "day"),
            short(millis % DAY / HOUR, "h"),
        )
    } else if millis >= HOUR {
        (
            short(millis / HOUR, "h"),
            short(millis % HOUR / MINUTE, "min"),
        )
    } else if millis >= MINUTE {
        (
            short(millis / MINUTE, "min"),
            short(millis % MINUTE / SECOND, "s"),
        )
    } else {
        (short(millis / SECOND, "s"), short(millis % SECOND, "ms"))
    }
}

fn counted(number: u64, unit: &str) -> Option<String> {
    match number {
        0 => None,
        1 => Some(format!("1 {unit}")),
        _ => Some(format!("{number} {unit}s")),
    }
}

#[derive(Default)]
struct Text(String);

impl Text {
    /// One more line; lines are separated, not ended.
    fn line(&mut self, line: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(line.trim_end_matches(' '));
    }

    /// Words behind a lead; further lines begin below the first word.
    fn wrapped(&mut self, lead: &str, words: &str) {
        let indent = " ".repeat(lead.len());
        let mut line = lead.to_string();
        let mut is_first = true;
        for word in words.split(' ') {
            if !is_first && line.len() + 1 + word.len() > COLUMNS {
                self.line(&line);
                line.clone_from(&indent);
                is_first = true;
            }
            if !is_first {
                line.push(' ');
            }
            line.push_str(word);
            is_first = false;
        }
        self.line(&line);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    use proptest::prelude::*;

    /// 2026-08-02 16:46:40 UTC.
    const NOW: UnixMillis = UnixMillis::new(1_785_689_200_000);

    fn explained(id: i64, label: &str, now: UnixMillis) -> String {
        let label = Label::parse(label).unwrap();
        explain(SnowflakeId::new(id), &label, "generator orders_ids", now).unwrap()
    }

    #[test]
    fn the_default_layout() {
        assert_eq!(
            explained(49_967_380_652 << 22 | 5 << 12 | 44, "preset=default", NOW),
            "\
ID 209578384538226732 of generator orders_ids

  0  | 00000101110100010010010011011100010101100 | 0000000101 | 000000101100
  63 | 62                                     22 | 21      12 | 11         0
     | time                                      | worker     | sequence

  field     bits         value
  unused    63               0
  time      62-22  49967380652  2026-08-02 07:49:40.652 UTC
  worker    21-12            5
  sequence  11-0            44

  created    2026-08-02 07:49:40.652 UTC, 8 h 56 min ago
  epoch      2025-01-01 00:00:00.000 UTC, ticks of 1 ms
  layout     until 2094-09-07 15:47:35.551 UTC, another 68 years 35 days"
        );
    }

    #[test]
    fn reversed_time_and_a_worker_id_in_parts() {
        assert_eq!(
            explained(-5_391_707_587_647_182_246, "preset=uniqueid_spread", NOW),
            "\
ID -5391707587647182246 of generator orders_ids

  101101010010110011001110100000111111100110 | 000010   | 111       | 0    | 10100101  | 1010
  63                                      22 | 21  16   | 15-13     | 12   | 11     4  | 3  0
  time_reversed                              | sequence | generator | mode | generator | cluster
                                             |          | _high     |      | _low      |

  field           bits           value
  time_reversed   63-22  1785656980653  2026-08-02 07:49:40.653 UTC, bits reversed
  sequence        21-16              2
  generator_high  15-13              7
  mode            12                 0  fixed
  generator_low   11-4             165
  cluster         3-0               10

  created    2026-08-02 07:49:40.653 UTC, 8 h 56 min ago
  worker ID  31322 of generator_high, generator_low, cluster
  epoch      1970-01-01 00:00:00.000 UTC, ticks of 1 ms
  layout     until 2109-05-15 07:35:11.103 UTC, another 82 years 285 days
  sign       some IDs are negative"
        );
    }

    #[test]
    fn a_fixed_field_and_a_time_that_is_over() {
        let id = 123_456_789_012 << 25 | 33 << 19 | 200 << 5 | 2 << 3 | 7;
        assert_eq!(
            explained(id, "preset=ztesoft resource_type=200", NOW),
            "\
ID 4142522431858809111 of generator orders_ids

  0  | 01110010111110100110010001101000010100 | 100001 | 00000011001000 | 10      | 111
  63 | 62                                  25 | 24  19 | 18           5 | 4-3     | 2 0
     | time                                   | region | resource_type  | machine | sequence

  field          bits          value
  unused         63                0
  time           62-25  123456789012  2018-11-29 13:33:09.012 UTC
  region         24-19            33
  resource_type  18-5            200  fixed
  machine        4-3               2
  sequence       2-0               7

  created    2018-11-29 13:33:09.012 UTC, 7 years 246 days ago
  worker ID  134 of region, machine
  epoch      2014-12-31 16:00:00.000 UTC, ticks of 1 ms
  layout     over since 2023-09-17 02:58:26.943 UTC, 2 years 319 days ago"
        );
    }

    #[test]
    fn ids_that_turn_negative() {
        assert_eq!(
            explained(175_928_847_299_117_063, "preset=discord", NOW),
            "\
ID 175928847299117063 of generator orders_ids

  000000100111000100000110010110101100000100 | 00001  | 00000   | 000000000111
  63                                      22 | 21 17  | 16 12   | 11         0
  time                                       | worker | process | sequence

  field     bits         value
  time      63-22  41944705796  2016-04-30 11:18:25.796 UTC
  worker    21-17            1
  process   16-12            0
  sequence  11-0             7

  created    2016-04-30 11:18:25.796 UTC, 10 years 94 days ago
  worker ID  32 of worker, process
  epoch      2015-01-01 00:00:00.000 UTC, ticks of 1 ms
  layout     until 2154-05-15 07:35:11.103 UTC, another 127 years 285 days
  sign       IDs turn negative at 2084-09-06 15:47:35.552 UTC, in 58 years 34 days"
        );
    }

    #[test]
    fn sixty_four_fields() {
        let flags = (0..31).map(|n| format!("flag_{n}:1 is_{n}:1={}", n & 1));
        let flags = flags.collect::<Vec<_>>().join(" ");
        let label = format!("layout='time:1 {flags} sequence:1' epoch=0");
        assert_eq!(
            explained(5_299_778_852_922_902_925, &label, NOW),
            "\
ID 5299778852922902925 of generator orders_ids

  0  | 1  | 0  | 0  | 1  | 0  | 0  | 1  | 1  | 0   | 0   | 0   | 1   | 1   | 0   | 0   | 1   | 0
  63 | 62 | 61 | 60 | 59 | 58 | 57 | 56 | 55 | 54  | 53  | 52  | 51  | 50  | 49  | 48  | 47  | 46
  #1 | #2 | #3 | #4 | #5 | #6 | #7 | #8 | #9 | #10 | #11 | #12 | #13 | #14 | #15 | #16 | #17 | #18

  0   | 1   | 1   | 0   | 0   | 0   | 1   | 1   | 0   | 0   | 1   | 0   | 0   | 1   | 1   | 0
  45  | 44  | 43  | 42  | 41  | 40  | 39  | 38  | 37  | 36  | 35  | 34  | 33  | 32  | 31  | 30
  #19 | #20 | #21 | #22 | #23 | #24 | #25 | #26 | #27 | #28 | #29 | #30 | #31 | #32 | #33 | #34

  0   | 0   | 1   | 1   | 0   | 0   | 1   | 0   | 0   | 1   | 1   | 0   | 0   | 0   | 1   | 1
  29  | 28  | 27  | 26  | 25  | 24  | 23  | 22  | 21  | 20  | 19  | 18  | 17  | 16  | 15  | 14
  #35 | #36 | #37 | #38 | #39 | #40 | #41 | #42 | #43 | #44 | #45 | #46 | #47 | #48 | #49 | #50

  0   | 0   | 1   | 0   | 0   | 1   | 1   | 0   | 0   | 0   | 1   | 1   | 0   | 1
  13  | 12  | 11  | 10  | 9   | 8   | 7   | 6   | 5   | 4   | 3   | 2   | 1   | 0
  #51 | #52 | #53 | #54 | #55 | #56 | #57 | #58 | #59 | #60 | #61 | #62 | #63 | #64

       field     bits   value
  #1   time      63         0  1970-01-01 00:00:00.000 UTC
  #2   flag_0    62         1
  #3   is_0      61         0  fixed
  #4   flag_1    60         0
  #5   is_1      59         1  fixed
  #6   flag_2    58         0
  #7   is_2      57         0  fixed
  #8   flag_3    56         1
  #9   is_3      55         1  fixed
  #10  flag_4    54         0
  #11  is_4      53         0  fixed
  #12  flag_5    52         0
  #13  is_5      51         1  fixed
  #14  flag_6    50         1
  #15  is_6      49         0  fixed
  #16  flag_7    48         0
  #17  is_7      47         1  fixed
  #18  flag_8    46         0
  #19  is_8      45         0  fixed
  #20  flag_9    44         1
  #21  is_9      43         1  fixed
  #22  flag_10   42         0
  #23  is_10     41         0  fixed
  #24  flag_11   40         0
  #25  is_11     39         1  fixed
  #26  flag_12   38         1
  #27  is_12     37         0  fixed
  #28  flag_13   36         0
  #29  is_13     35         1  fixed
  #30  flag_14   34         0
  #31  is_14     33         0  fixed
  #32  flag_15   32         1
  #33  is_15     31         1  fixed
  #34  flag_16   30         0
  #35  is_16     29         0  fixed
  #36  flag_17   28         0
  #37  is_17     27         1  fixed
  #38  flag_18   26         1
  #39  is_18     25         0  fixed
  #40  flag_19   24         0
  #41  is_19     23         1  fixed
  #42  flag_20   22         0
  #43  is_20     21         0  fixed
  #44  flag_21   20         1
  #45  is_21     19         1  fixed
  #46  flag_22   18         0
  #47  is_22     17         0  fixed
  #48  flag_23   16         0
  #49  is_23     15         1  fixed
  #50  flag_24   14         1
  #51  is_24     13         0  fixed
  #52  flag_25   12         0
  #53  is_25     11         1  fixed
  #54  flag_26   10         0
  #55  is_26     9          0  fixed
  #56  flag_27   8          1
  #57  is_27     7          1  fixed
  #58  flag_28   6          0
  #59  is_28     5          0  fixed
  #60  flag_29   4          0
  #61  is_29     3          1  fixed
  #62  flag_30   2          1
  #63  is_30     1          0  fixed
  #64  sequence  0          1

  created    1970-01-01 00:00:00.000 UTC, 56 years 213 days ago
  worker ID  1227133513 of flag_0, flag_1, flag_2, flag_3, flag_4, flag_5, flag_6, flag_7, flag_8,
             flag_9, flag_10, flag_11, flag_12, flag_13, flag_14, flag_15, flag_16, flag_17,
             flag_18, flag_19, flag_20, flag_21, flag_22, flag_23, flag_24, flag_25, flag_26,
             flag_27, flag_28, flag_29, flag_30
  epoch      1970-01-01 00:00:00.000 UTC, ticks of 1 ms
  layout     over since 1970-01-01 00:00:00.001 UTC, 56 years 213 days ago
  sign       IDs have been negative since 1970-01-01 00:00:00.001 UTC, 56 years 213 days ago"
        );
    }

    #[test]
    fn names_without_room_have_keys() {
        let label = "layout='time:31 shard_of_the_customer_by_region:8 zone:5 rack:2 \
                     host_in_the_rack_counted_from_the_bottom:4 sequence:12' epoch=0 tick='1 s'";
        assert_eq!(
            explained(3_834_792_229_273_611_264, label, NOW),
            "\
ID 3834792229273611264 of generator orders_ids

  00    | 1101010011011111101011001101110 | 00001010 | 10010 | 00    | 0010  | 110000000000
  63-62 | 61                           31 | 30    23 | 22 18 | 17-16 | 15-12 | 11         0
        | time                            | #1       | zone  | rack  | #2    | sequence

      field     bits        value
      unused    63-62           0
      time      61-31  1785714286  2026-08-02 23:44:46.000 UTC
  #1  shard_of_the_customer_by_region
                30-23          10
      zone      22-18          18
      rack      17-16           0
  #2  host_in_the_rack_counted_from_the_bottom
                15-12           2
      sequence  11-0         3072

  created    2026-08-02 23:44:46.000 UTC, in 6 h 58 min
  worker ID  21634 of shard_of_the_customer_by_region, zone, rack,
             host_in_the_rack_counted_from_the_bottom
  epoch      1970-01-01 00:00:00.000 UTC, ticks of 1 s
  layout     until 2038-01-19 03:14:07.000 UTC, another 11 years 169 days"
        );
    }

    #[test]
    fn names_break_before_underscores() {
        let lines = |name: &str, width| broken(name, width).map(|lines| lines.join(" "));
        let text = |text: &str| Some(text.to_string());
        assert_eq!(lines("generator_high", 5), text("generator _high"));
        assert_eq!(lines("generator_high", 14), text("generator_high"));
        assert_eq!(lines("rack_a__b_", 6), text("rack_a __b_"));
        assert_eq!(lines(&"x".repeat(24), 3), text(&"x".repeat(24)));
        assert_eq!(lines(&"x".repeat(25), 3), None);
    }

    #[test]
    fn two_rows_rather_than_keys() {
        let label = "layout='time:32 region:4 zone:4 building:4 customer:2 product:2 storage:2 \
                     sequence:12' epoch='2025-01-01 00:00:00Z' tick='1 s'";
        assert_eq!(
            explained(0x0123_4567_89ab_cdef, label, NOW),
            "\
ID 81985529216486895 of generator orders_ids

  00    | 00000100100011010001010110011110 | 0010   | 0110  | 1010     | 11       | 11
  63-62 | 61                            30 | 29-26  | 25-22 | 21-18    | 17-16    | 15-14
        | time                             | region | zone  | building | customer | product

  00      | 110111101111
  13-12   | 11         0
  storage | sequence

  field     bits      value
  unused    63-62         0
  time      61-30  76354974  2027-06-03 17:42:54.000 UTC
  region    29-26         2
  zone      25-22         6
  building  21-18        10
  customer  17-16         3
  product   15-14         3
  storage   13-12         0
  sequence  11-0       3567

  created    2027-06-03 17:42:54.000 UTC, in 305 days
  worker ID  39612 of region, zone, building, customer, product, storage
  epoch      2025-01-01 00:00:00.000 UTC, ticks of 1 s
  layout     until 2161-02-07 06:28:15.000 UTC, another 134 years 188 days"
        );
    }

    #[test]
    fn years_beyond_9999() {
        let label = "layout='time:45 sequence:6 worker:13' tick='10 s' epoch=0";
        assert_eq!(
            explained(175_928_847_299_117_063, label, NOW),
            "\
ID 175928847299117063 of generator orders_ids

  000000100111000100000110010110101100000100000 | 010000   | 0000000000111
  63                                         19 | 18  13   | 12          0
  time                                          | sequence | worker

  field     bits          value
  time      63-19  335557646368  108303-12-27 13:14:40.000 UTC
  sequence  18-13            16
  worker    12-0              7

  created    108303-12-27 13:14:40.000 UTC, in 106277 years 146 days
  epoch      1970-01-01 00:00:00.000 UTC, ticks of 10 s
  layout     until 11151453-09-01 01:25:10.000 UTC, another 11149427 years 29 days
  sign       IDs turn negative at 5576711-11-02 00:42:40.000 UTC, in 5574685 years 91 days"
        );
        // Nothing overflows at the ends of what there is.
        for now in [i64::MIN, -1, i64::MAX] {
            for id in [0, i64::MAX, i64::MIN, -1] {
                explained(id, label, UnixMillis::new(now));
            }
        }
    }

    #[test]
    fn the_title_is_not_cut() {
        let label = Label::parse("preset=default").unwrap();
        let first = |title: &str| {
            let text = explain(SnowflakeId::new(1), &label, title, NOW).unwrap();
            text.split_once("\n\n").unwrap().0.to_string()
        };
        let fits = "x".repeat(COLUMNS - "ID 1 of ".len());
        assert_eq!(first(&fits), format!("ID 1 of {fits}"));
        assert_eq!(first(&format!("{fits}y")), format!("ID 1 of\n{fits}y"));
    }

    #[test]
    fn mode_says_how_the_time_is_written() {
        // Tick 1, once reversed and once as it is.
        for (id, is_reversed) in [(i64::MIN, true), (1 << 22 | 1 << 12, false)] {
            let text = explained(id, "preset=uniqueid", NOW);
            assert!(text.contains("  1  1970-01-01 00:00:00.001 UTC"), "{text}");
            assert_eq!(text.contains("bits reversed"), is_reversed, "{text}");
        }
    }

    #[test]
    fn other_ids_are_refused() {
        let label = Label::parse("preset=default").unwrap();
        assert_eq!(
            explain(SnowflakeId::new(-1), &label, "", NOW),
            Err(LayoutError::NotAnId { id: -1, bits: 63 })
        );
    }

    #[test]
    fn signs() {
        let sign = |id, fields: &str, now| {
            let label = format!("layout='{fields}' epoch=0");
            let text = explained(id, &label, UnixMillis::new(now));
            let sign = text
                .lines()
                .find_map(|line| line.strip_prefix("  sign       "));
            sign.unwrap_or_default().to_string()
        };
        let turn = 1 << 41;
        assert_eq!(
            sign(0, "time:42 worker:10 sequence:12", turn - 4000),
            "IDs turn negative at 2039-09-07 15:47:35.552 UTC, in 4 s"
        );
        assert_eq!(
            sign(0, "time:42 worker:10 sequence:12", turn),
            "IDs have been negative since 2039-09-07 15:47:35.552 UTC, now"
        );
        assert_eq!(
            sign(0, "worker:11 time:41 sequence:12", 0),
            "some IDs are negative"
        );
        assert_eq!(
            sign(-1, "row:2=3 worker:10 time:40 sequence:12", 0),
            "all IDs are negative"
        );
        assert_eq!(
            sign(1 << 62, "row:2=1 worker:10 time:40 sequence:12", 0),
            ""
        );
        assert_eq!(sign(0, "time:41 worker:10 sequence:12", 0), "");
    }

    #[test]
    fn two_largest_units() {
        let at = |text: &str| {
            let at: Timestamp = text.parse().unwrap();
            UnixMillis::new(at.as_millisecond())
        };
        for (from, to, expected) in [
            (
                "2026-08-02T00:00:00.000Z",
                "2026-08-02T00:00:00.001Z",
                "1 ms",
            ),
            (
                "2026-08-02T00:00:00.999Z",
                "2026-08-02T00:00:02.000Z",
                "1 s 1 ms",
            ),
            ("2026-08-02T00:00:00Z", "2026-08-02T00:00:04Z", "4 s"),
            (
                "2026-08-02T00:00:00Z",
                "2026-08-02T00:00:59.999Z",
                "59 s 999 ms",
            ),
            ("2026-08-02T00:00:00Z", "2026-08-02T00:01:00.999Z", "1 min"),
            ("2026-08-02T00:00:00Z", "2026-08-02T09:03:59Z", "9 h 3 min"),
            (
                "2026-08-02T00:00:00Z",
                "2026-08-02T23:59:59Z",
                "23 h 59 min",
            ),
            ("2026-08-02T00:00:00Z", "2026-08-03T00:59:59Z", "1 day"),
            ("2026-08-02T00:00:00Z", "2026-08-04T05:00:00Z", "2 days 5 h"),
            (
                "2026-08-02T12:00:00Z",
                "2027-08-02T11:59:59Z",
                "364 days 23 h",
            ),
            ("2026-08-02T12:00:00Z", "2027-08-02T12:00:00Z", "1 year"),
            (
                "2026-08-02T12:00:00Z",
                "2027-08-03T12:00:00Z",
                "1 year 1 day",
            ),
            (
                "2026-08-02T12:00:00Z",
                "2093-05-19T12:00:00Z",
                "66 years 290 days",
            ),
            (
                "1999-12-31T23:59:59Z",
                "2001-12-31T23:59:58Z",
                "1 year 364 days",
            ),
            (
                "2024-02-29T00:00:00Z",
                "2025-03-01T00:00:00Z",
                "1 year 1 day",
            ),
            (
                "1600-01-01T00:00:00Z",
                "9600-01-03T00:00:00Z",
                "8000 years 2 days",
            ),
            ("1969-12-31T00:00:00Z", "2368-12-31T00:00:00Z", "399 years"),
            ("1969-12-31T00:00:00Z", "2369-12-31T00:00:00Z", "400 years"),
        ] {
            assert_eq!(elapsed(at(from), at(to)), expected, "{from} {to}");
        }
        let now = at("2026-08-02T00:00:00Z");
        assert_eq!(relative(now, now), "now");
        assert_eq!(relative(at("2026-08-01T14:57:00Z"), now), "9 h 3 min ago");
        assert_eq!(relative(at("2026-08-02T00:00:04Z"), now), "in 4 s");
    }

    /// A name of up to 63 characters, different for each `at`.
    fn any_name(at: usize) -> impl Strategy<Value = String> {
        (prop::collection::vec(1..20usize, 1..8), 2..64usize).prop_map(move |(words, most)| {
            let words = words.into_iter().map(|length| "x".repeat(length));
            let mut name = format!("f{at}_{}", words.collect::<Vec<_>>().join("_"));
            name.truncate(most.max(3));
            name
        })
    }

    /// Fields of all roles, widths and lengths of names, as a label; and an ID
    /// that it can have made.
    fn any_label_and_id() -> impl Strategy<Value = (Label, SnowflakeId)> {
        let others = (1..=62usize).prop_flat_map(|count| {
            (0..count)
                .map(|at| {
                    (
                        any_name(at),
                        1..=62u32 / u32::try_from(count).unwrap(),
                        any::<Option<u64>>(),
                    )
                })
                .collect::<Vec<_>>()
        });
        let time = (
            prop::sample::select(vec!["time", "time_reversed", "time_by_mode"]),
            1..=45u32,
        );
        let tick = prop::sample::select(vec!["1 ms", "17 ms", "10 s"]);
        (
            time,
            1..=31u32,
            0..=4u32,
            others,
            tick,
            0..=1i64 << 45,
            any::<u64>(),
            any::<prop::sample::Index>(),
        )
            .prop_filter_map(
                "a layout",
                |((time, time_bits), sequence, clock, others, tick, epoch, id, place)| {
                    let mut fields: Vec<String> = Vec::new();
                    let mut left = 64u32;
                    let mut take = |bits: u32, keep: u32| {
                        let bits = bits.min(left.saturating_sub(keep));
                        left -= bits;
                        bits
                    };
                    let keep = u32::try_from(others.len()).unwrap();
                    let sequence = take(sequence.min(62 / keep.max(2)), 0);
                    fields.push(format!("sequence:{sequence}"));
                    if time == "time_by_mode" {
                        fields.push(format!("mode:{}", take(1, 0)));
                    }
                    if clock > 0 && keep < 50 {
                        fields.push(format!("clock:{}", take(clock, keep + 1)));
                    }
                    fields.push(format!("{time}:{}", take(time_bits, keep).max(1)));
                    for (name, bits, value) in others {
                        let bits = take(bits, 0);
                        if bits > 0 {
                            fields.push(match value {
                                Some(value) => {
                                    format!("{name}:{bits}={}", value & (u64::MAX >> (64 - bits)))
                                }
                                None => format!("{name}:{bits}"),
                            });
                        }
                    }
                    let middle = place.index(fields.len());
                    fields.rotate_left(middle);
                    let epoch = if epoch < 100_000_000_000 { 0 } else { epoch };
                    let label =
                        format!("layout='{}' epoch={epoch} tick='{tick}'", fields.join(" "));
                    let label = Label::parse(&label).ok()?;
                    let id = label.fields().iter().fold(0, |bits, field| {
                        let value = match field.role {
                            Role::Fixed(value) => value,
                            _ => field.of(id),
                        };
                        bits | value << field.shift
                    });
                    Some((label, SnowflakeId::new(id.cast_signed())))
                },
            )
    }

    /// The bits in the drawing: the first line of each row.
    fn bits_drawn(text: &str) -> String {
        text.split("\n\n")
            .skip(1)
            .take_while(|row| !row.contains("field"))
            .flat_map(|row| row.lines().next().unwrap().chars())
            .filter(|c| !" |".contains(*c))
            .collect()
    }

    proptest! {
        #[test]
        fn any_id_of_any_label((label, id) in any_label_and_id(), now: i64, near in any::<bool>()) {
            let now = UnixMillis::new(if near { now >> 20 } else { now });
            let text = explain(id, &label, "generator orders_ids", now).unwrap();
            for line in text.split('\n') {
                prop_assert!(line.len() <= COLUMNS, "{}: {line}", line.len());
                prop_assert!(!line.ends_with(' ') && line.is_ascii(), "{line:?}");
            }
            let (_, table) = text.split_once("  field").unwrap();
            let words: Vec<_> = table.split_whitespace().collect();
            for field in label.fields() {
                prop_assert!(words.contains(&field.name.as_str()), "{}", field.name);
            }
            let drawn = bits_drawn(&text);
            prop_assert_eq!(drawn.len(), 64);
            prop_assert_eq!(u64::from_str_radix(&drawn, 2), Ok(id.get().cast_unsigned()));
        }
    }
}
