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
//! [`COLUMNS`] wide: wider drawings continue in further rows.

use std::cmp::Ordering;
use std::iter::once;

use crate::id::layout::{FieldRole, LayoutError, OrderError::NegativeFrom};
use crate::id::{SnowflakeId, UnixMillis};
use crate::label::duration::{instant_text, rounded};
use crate::label::{DecodedFields, Field, Label, tick_text};

/// The most columns of a line; only a longer title exceeds them.
pub const COLUMNS: usize = 100;

const INDENT: &str = "  ";
const BAR: &str = " | ";
/// Names up to this length have a column in the table; longer ones have a line.
const NAME_COLUMNS: usize = 24;

/// What there is to know about an ID of the generator that `title` names, as lines of
/// ASCII without trailing white space. No line is longer than [`COLUMNS`], except for a
/// longer `title`, which is not cut. Fails as [`Label::decode`] does, if no generator
/// with this label can have made the ID.
pub fn explain(
    id: SnowflakeId,
    label: &Label,
    title: &str,
    now: UnixMillis,
) -> Result<String, LayoutError> {
    let decoded = label.decode(id)?;
    let first = format!("ID {} of", id.get());
    let fits = first.len() + 1 + title.chars().count() <= COLUMNS;
    let mut lines = vec![format!("{first}{}{title}", if fits { " " } else { "\n" })];
    let (bits, width) = (id.get().cast_unsigned(), label.layout().width());
    let unused = (width < 64).then(|| Field {
        name: "unused".to_string(),
        role: FieldRole::Fixed(0),
        bits: 64 - width,
        shift: width,
    });
    let fields: Vec<_> = unused.iter().chain(label.fields()).collect();
    let drawn = |names| draw(fields.iter().map(|field| column(field, bits, width, names)));
    let mut rows = drawn(COLUMNS);
    if rows.len() > 1 {
        rows = drawn(0);
    }
    lines.extend(rows.into_iter().flatten());
    table(&mut lines, &fields, bits, label);
    summarize(&mut lines, label, &decoded, now);
    let lines = lines.iter().map(|line| line.trim_end_matches(' '));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// The positions of the bits of a field, or of the bits above all fields.
fn positions(field: &Field) -> String {
    match field.bits {
        1 => field.shift.to_string(),
        bits => format!("{}-{}", field.shift + bits - 1, field.shift),
    }
}

/// A field as it is drawn: its bits, their positions, and its name, which is broken
/// before underscores if it is longer than the bits, the positions and `names`. `width`
/// is the width of all fields.
fn column(field: &Field, bits: u64, width: u32, names: usize) -> Vec<String> {
    let wide = field.bits as usize;
    let digits = format!("{:0wide$b}", field.value_in(bits));
    let mut range = positions(field);
    // Each end stands under its bit, if there is room for both.
    if wide > 1 && wide >= range.len() {
        range = range.replace('-', &" ".repeat(wide + 1 - range.len()));
    }
    let own = wide.max(range.len());
    let mut column = vec![digits, range];
    let words = field.name.replace('_', " _");
    let longest = words.split(' ').map(str::len).max().unwrap_or(0);
    // Bits without a meaning need no room for a name.
    if field.shift < width || longest <= own {
        column.extend(fill(&words, "", longest.max(own).max(names)));
    }
    column
}

/// The lines of each row; a row has as many columns as fit.
fn draw(columns: impl Iterator<Item = Vec<String>>) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<_>> = Vec::new();
    let mut used = 0;
    for column in columns {
        used += BAR.len() + widest(&column);
        match rows.last_mut() {
            Some(row) if used <= COLUMNS => row.push(column),
            _ => {
                used = INDENT.len() + widest(&column);
                rows.push(vec![column]);
            }
        }
    }
    let lines = |row: Vec<Vec<String>>| {
        let height = row.iter().map(Vec::len).max().unwrap_or(0);
        let line = |n| {
            let cell = |column: &Vec<String>| {
                let cell = column.get(n).map_or("", String::as_str);
                format!("{cell:<0$}", widest(column))
            };
            let cells: Vec<_> = row.iter().map(cell).collect();
            format!("{INDENT}{}", cells.join(BAR))
        };
        once(String::new()).chain((0..height).map(line)).collect()
    };
    rows.into_iter().map(lines).collect()
}

/// Adds the fields one by one.
fn table(lines: &mut Vec<String>, fields: &[&Field], bits: u64, label: &Label) {
    let layout = label.layout();
    let tick = layout.tick_of_id(SnowflakeId::new(bits.cast_signed()));
    let mut created = instant_text(layout.instant_of(tick));
    if layout.is_reversed(bits) {
        created += ", bits reversed";
    }
    let rows = fields.iter().map(|field| {
        let is_worker = field.max() == layout.max_worker();
        let (mut value, mut note) = (field.value_in(bits), "");
        match field.role {
            role if role.is_time() => (value, note) = (tick.get(), &created),
            FieldRole::Fixed(_) if field.shift < layout.width() => note = "fixed",
            FieldRole::Caller => note = "given by the caller",
            FieldRole::Worker if is_worker && field.name != "worker" => note = "worker ID",
            _ => {}
        }
        let name = field.name.clone();
        [name, positions(field), value.to_string(), note.to_string()]
    });
    let head = ["field", "bits", "value", ""].map(str::to_string);
    let rows: Vec<_> = once(head).chain(rows).collect();
    let names = rows.iter().map(|[name, ..]| name);
    let name_width = widest(names.filter(|name| name.len() <= NAME_COLUMNS));
    let value_width = widest(rows.iter().map(|[_, _, value, _]| value));
    lines.push(String::new());
    for [name, bits, value, note] in &rows {
        let mut name = format!("{INDENT}{name:<name_width$}");
        if name.len() > INDENT.len() + name_width {
            lines.push(name);
            name = " ".repeat(INDENT.len() + name_width);
        }
        let lead = format!("{name}  {bits:<5}  {value:>value_width$}  ");
        wrap(lines, lead, note);
    }
}

/// Adds what the single fields do not say.
fn summarize(lines: &mut Vec<String>, label: &Label, decoded: &DecodedFields, now: UnixMillis) {
    let layout = label.layout();
    let span = |at: UnixMillis| rounded(at.since(now).abs());
    let at = |at: UnixMillis| match at.cmp(&now) {
        Ordering::Less => format!("{}, {} ago", instant_text(at), span(at)),
        Ordering::Equal => format!("{}, now", instant_text(at)),
        Ordering::Greater => format!("{}, in {}", instant_text(at), span(at)),
    };
    let mut line = |what, is: String| wrap(lines, format!("{INDENT}{what:<9}  "), &is);
    line("", String::new());
    line("created", at(layout.instant_of(decoded.fields.tick)));
    let workers = label
        .fields()
        .iter()
        .filter(|f| f.role == FieldRole::Worker);
    let workers: Vec<_> = workers.map(|field| field.name.as_str()).collect();
    if workers.len() > 1 {
        let (worker, names) = (decoded.fields.worker, workers.join(", "));
        line("worker ID", format!("{worker} of {names}"));
    }
    let tick = tick_text(layout);
    let epoch = instant_text(layout.epoch());
    line("epoch", format!("{epoch}, ticks of {tick}"));
    // The last tick is never issued.
    let end = layout.end();
    let until = format!("until {}, another {}", instant_text(end), span(end));
    let over = format!("over since {}", at(end));
    line("layout", if now < end { until } else { over });
    let top = label.fields().first().map(|field| field.role);
    let sign = match layout.disorder() {
        Some(NegativeFrom(turn)) if now < turn => format!("IDs turn negative at {}", at(turn)),
        Some(NegativeFrom(turn)) => format!("IDs have been negative since {}", at(turn)),
        _ if !layout.can_be_negative() => return,
        _ if matches!(top, Some(FieldRole::Fixed(_))) => "all IDs are negative".to_string(),
        _ => "some IDs are negative".to_string(),
    };
    line("sign", sign);
}

fn widest<'a>(lines: impl IntoIterator<Item = &'a String>) -> usize {
    lines.into_iter().map(String::len).max().unwrap_or(0)
}

/// Breaks words into lines of `width`; only longer words exceed it.
fn fill(words: &str, space: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + space.len() + word.len() <= width => {
                *line += &format!("{space}{word}");
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// Adds words after `lead`; further lines begin below the first word.
fn wrap(lines: &mut Vec<String>, mut lead: String, words: &str) {
    for line in fill(words, " ", COLUMNS.saturating_sub(lead.len())) {
        lines.push(lead.clone() + &line);
        lead = " ".repeat(lead.len());
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
  layout     until 2094-09-07 15:47:35.551 UTC, another 68 y 36 d"
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
  layout     until 2109-05-15 07:35:11.103 UTC, another 82 y 285 d
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

  created    2018-11-29 13:33:09.012 UTC, 7 y 246 d ago
  worker ID  134 of region, machine
  epoch      2014-12-31 16:00:00.000 UTC, ticks of 1 ms
  layout     over since 2023-09-17 02:58:26.943 UTC, 2 y 320 d ago"
        );
    }

    #[test]
    fn a_field_of_the_caller() {
        let id = 49_967_380_652 << 22 | 42 << 12 | 5 << 8 | 44;
        let label = "layout='time:41 tenant:10=caller worker:4 sequence:8' epoch=2025-01-01Z";
        assert_eq!(
            explained(id, label, NOW),
            "\
ID 209578384538379564 of generator orders_ids

  0  | 00000101110100010010010011011100010101100 | 0000101010 | 0101   | 00101100
  63 | 62                                     22 | 21      12 | 11 8   | 7      0
     | time                                      | tenant     | worker | sequence

  field     bits         value
  unused    63               0
  time      62-22  49967380652  2026-08-02 07:49:40.652 UTC
  tenant    21-12           42  given by the caller
  worker    11-8             5
  sequence  7-0             44

  created    2026-08-02 07:49:40.652 UTC, 8 h 56 min ago
  epoch      2025-01-01 00:00:00.000 UTC, ticks of 1 ms
  layout     until 2094-09-07 15:47:35.551 UTC, another 68 y 36 d"
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

  created    2016-04-30 11:18:25.796 UTC, 10 y 93 d ago
  worker ID  32 of worker, process
  epoch      2015-01-01 00:00:00.000 UTC, ticks of 1 ms
  layout     until 2154-05-15 07:35:11.103 UTC, another 127 y 285 d
  sign       IDs turn negative at 2084-09-06 15:47:35.552 UTC, in 58 y 35 d"
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

  0    | 1    | 0  | 0    | 1  | 0    | 0  | 1    | 1  | 0    | 0  | 0    | 1  | 1    | 0  | 0
  63   | 62   | 61 | 60   | 59 | 58   | 57 | 56   | 55 | 54   | 53 | 52   | 51 | 50   | 49 | 48
  time | flag | is | flag | is | flag | is | flag | is | flag | is | flag | is | flag | is | flag
       | _0   | _0 | _1   | _1 | _2   | _2 | _3   | _3 | _4   | _4 | _5   | _5 | _6   | _6 | _7

  1  | 0    | 0  | 1    | 1  | 0    | 0   | 0    | 1   | 1    | 0   | 0    | 1   | 0    | 0   | 1
  47 | 46   | 45 | 44   | 43 | 42   | 41  | 40   | 39  | 38   | 37  | 36   | 35  | 34   | 33  | 32
  is | flag | is | flag | is | flag | is  | flag | is  | flag | is  | flag | is  | flag | is  | flag
  _7 | _8   | _8 | _9   | _9 | _10  | _10 | _11  | _11 | _12  | _12 | _13  | _13 | _14  | _14 | _15

  1   | 0    | 0   | 0    | 1   | 1    | 0   | 0    | 1   | 0    | 0   | 1    | 1   | 0    | 0
  31  | 30   | 29  | 28   | 27  | 26   | 25  | 24   | 23  | 22   | 21  | 20   | 19  | 18   | 17
  is  | flag | is  | flag | is  | flag | is  | flag | is  | flag | is  | flag | is  | flag | is
  _15 | _16  | _16 | _17  | _17 | _18  | _18 | _19  | _19 | _20  | _20 | _21  | _21 | _22  | _22

  0    | 1   | 1    | 0   | 0    | 1   | 0    | 0   | 1    | 1   | 0    | 0   | 0    | 1   | 1
  16   | 15  | 14   | 13  | 12   | 11  | 10   | 9   | 8    | 7   | 6    | 5   | 4    | 3   | 2
  flag | is  | flag | is  | flag | is  | flag | is  | flag | is  | flag | is  | flag | is  | flag
  _23  | _23 | _24  | _24 | _25  | _25 | _26  | _26 | _27  | _27 | _28  | _28 | _29  | _29 | _30

  0   | 1
  1   | 0
  is  | sequence
  _30 |

  field     bits   value
  time      63         0  1970-01-01 00:00:00.000 UTC
  flag_0    62         1
  is_0      61         0  fixed
  flag_1    60         0
  is_1      59         1  fixed
  flag_2    58         0
  is_2      57         0  fixed
  flag_3    56         1
  is_3      55         1  fixed
  flag_4    54         0
  is_4      53         0  fixed
  flag_5    52         0
  is_5      51         1  fixed
  flag_6    50         1
  is_6      49         0  fixed
  flag_7    48         0
  is_7      47         1  fixed
  flag_8    46         0
  is_8      45         0  fixed
  flag_9    44         1
  is_9      43         1  fixed
  flag_10   42         0
  is_10     41         0  fixed
  flag_11   40         0
  is_11     39         1  fixed
  flag_12   38         1
  is_12     37         0  fixed
  flag_13   36         0
  is_13     35         1  fixed
  flag_14   34         0
  is_14     33         0  fixed
  flag_15   32         1
  is_15     31         1  fixed
  flag_16   30         0
  is_16     29         0  fixed
  flag_17   28         0
  is_17     27         1  fixed
  flag_18   26         1
  is_18     25         0  fixed
  flag_19   24         0
  is_19     23         1  fixed
  flag_20   22         0
  is_20     21         0  fixed
  flag_21   20         1
  is_21     19         1  fixed
  flag_22   18         0
  is_22     17         0  fixed
  flag_23   16         0
  is_23     15         1  fixed
  flag_24   14         1
  is_24     13         0  fixed
  flag_25   12         0
  is_25     11         1  fixed
  flag_26   10         0
  is_26     9          0  fixed
  flag_27   8          1
  is_27     7          1  fixed
  flag_28   6          0
  is_28     5          0  fixed
  flag_29   4          0
  is_29     3          1  fixed
  flag_30   2          1
  is_30     1          0  fixed
  sequence  0          1

  created    1970-01-01 00:00:00.000 UTC, 56 y 214 d ago
  worker ID  1227133513 of flag_0, flag_1, flag_2, flag_3, flag_4, flag_5, flag_6, flag_7, flag_8,
             flag_9, flag_10, flag_11, flag_12, flag_13, flag_14, flag_15, flag_16, flag_17,
             flag_18, flag_19, flag_20, flag_21, flag_22, flag_23, flag_24, flag_25, flag_26,
             flag_27, flag_28, flag_29, flag_30
  epoch      1970-01-01 00:00:00.000 UTC, ticks of 1 ms
  layout     over since 1970-01-01 00:00:00.001 UTC, 56 y 214 d ago
  sign       IDs have been negative since 1970-01-01 00:00:00.001 UTC, 56 y 214 d ago"
        );
    }

    #[test]
    fn long_names_are_broken() {
        let label = "layout='time:31 shard_of_the_customer_by_region:8 zone:5 rack:2 \
                     host_in_the_rack_counted_from_the_bottom:4 sequence:12' epoch=0 tick='1 s'";
        assert_eq!(
            explained(3_834_792_229_273_611_264, label, NOW),
            "\
ID 3834792229273611264 of generator orders_ids

  00    | 1101010011011111101011001101110 | 00001010  | 10010 | 00    | 0010     | 110000000000
  63-62 | 61                           31 | 30    23  | 22 18 | 17-16 | 15-12    | 11         0
        | time                            | shard_of  | zone  | rack  | host_in  | sequence
        |                                 | _the      |       |       | _the     |
        |                                 | _customer |       |       | _rack    |
        |                                 | _by       |       |       | _counted |
        |                                 | _region   |       |       | _from    |
        |                                 |           |       |       | _the     |
        |                                 |           |       |       | _bottom  |

  field     bits        value
  unused    63-62           0
  time      61-31  1785714286  2026-08-02 23:44:46.000 UTC
  shard_of_the_customer_by_region
            30-23          10
  zone      22-18          18
  rack      17-16           0
  host_in_the_rack_counted_from_the_bottom
            15-12           2
  sequence  11-0         3072

  created    2026-08-02 23:44:46.000 UTC, in 6 h 58 min
  worker ID  21634 of shard_of_the_customer_by_region, zone, rack,
             host_in_the_rack_counted_from_the_bottom
  epoch      1970-01-01 00:00:00.000 UTC, ticks of 1 s
  layout     until 2038-01-19 03:14:07.000 UTC, another 11 y 169 d"
        );
    }

    #[test]
    fn two_rows() {
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

  created    2027-06-03 17:42:54.000 UTC, in 305 d
  worker ID  39612 of region, zone, building, customer, product, storage
  epoch      2025-01-01 00:00:00.000 UTC, ticks of 1 s
  layout     until 2161-02-07 06:28:15.000 UTC, another 134 y 189 d"
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

  created    108303-12-27 13:14:40.000 UTC, in 106277 y 145 d
  epoch      1970-01-01 00:00:00.000 UTC, ticks of 10 s
  layout     until 11151453-09-01 01:25:10.000 UTC, another 11149427 y 29 d
  sign       IDs turn negative at 5576711-11-02 00:42:40.000 UTC, in 5574685 y 90 d"
        );
        // Nothing overflows at the smallest and largest instants.
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
        // Tick 1, once reversed and once plain.
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

    /// A name of up to 63 characters, different for each `at`.
    fn any_name(at: usize) -> impl Strategy<Value = String> {
        (prop::collection::vec(1..20usize, 1..8), 2..64usize).prop_map(move |(words, most)| {
            let words = words.into_iter().map(|length| "x".repeat(length));
            let mut name = format!("f{at}_{}", words.collect::<Vec<_>>().join("_"));
            name.truncate(most.max(3));
            name
        })
    }

    /// Fields of all roles, widths and lengths of names, as a label; and an ID that
    /// this label can have made.
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
            prop_oneof![3 => 1..=45u32, 1 => 46..=63u32],
        );
        let tick = prop::sample::select(vec!["10 us", "1 ms", "17 ms", "10 s"]);
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
                            FieldRole::Fixed(value) => value,
                            _ => field.value_in(id),
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
