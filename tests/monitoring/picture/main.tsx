// Draws docs/monitoring/dashboard.json with the React components and the field settings of
// Grafana, at the places that the file gives, with the answers of a Prometheus.
import '@fontsource/inter/latin-400.css';
import '@fontsource/inter/latin-500.css';
import { createRoot } from 'react-dom/client';
import {
  applyFieldOverrides, createDataFrame, createTheme, dateTime, FieldConfigOptionsRegistry, FieldType, getDisplayValueAlignmentFactors,
  getFieldDisplayValues, ThemeContext, type DataFrame, type FieldConfigPropertyItem, type FieldConfigSource, type TimeRange,
} from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, TimeSeries, VizRepeater } from '@grafana/ui';

interface Result { metric: Record<string, string>; value?: [number, string]; values?: Array<[number, string]> }
interface Target { refId: string; expr: string; legendFormat: string }
interface Panel {
  id: number; type: string; title: string; targets: Target[]; options: any; fieldConfig: FieldConfigSource;
  gridPos: { x: number; y: number; w: number; h: number };
}
// The test writes this into the page: the panels, and the answers by panel and query.
declare const picture: {
  dashboard: { title: string; panels: Panel[] }; note: string; from: number; to: number; step: number; width: number;
  answers: Record<string, Record<string, Result[]>>;
};

const theme = createTheme({ colors: { mode: 'light' } });
const [from, to] = [dateTime(picture.from * 1000), dateTime(picture.to * 1000)];
const timeRange: TimeRange = { from, to, raw: { from, to } };
const timeZone = 'utc';
const [gap, row, edge, head] = [8, 30, 16, 48]; // the first two as in Grafana's grid
const column = (picture.width - 2 * edge - 23 * gap) / 24;

// Grafana's settings of a field are in its application, with their editors. What is drawn
// needs their paths only.
const standard = ['unit', 'min', 'max', 'decimals', 'displayName', 'noValue', 'thresholds', 'mappings', 'color'];
function registry({ defaults, overrides }: FieldConfigSource) {
  const overridden = overrides.flatMap(({ properties }) => properties.map(({ id }) => id)).filter((id) => id.startsWith('custom.'));
  const custom = new Set([...Object.keys(defaults.custom ?? {}), ...overridden.map((id) => id.slice('custom.'.length))]);
  const item = (path: string, isCustom: boolean) => ({
    id: isCustom ? `custom.${path}` : path, path, isCustom, name: path, shouldApply: () => true, process: (value: unknown) => value,
  });
  const items = [...standard.map((path) => item(path, false)), ...[...custom].map((path) => item(path, true))];
  return new FieldConfigOptionsRegistry(() => items as unknown as FieldConfigPropertyItem[]);
}

// A series gets the name that Grafana's source for Prometheus would give it.
function nameOf({ legendFormat, expr }: Target, metric: Result['metric']) {
  const labels = Object.entries(metric).map(([label, value]) => `${label}="${value}"`);
  return legendFormat ? legendFormat.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? '') : labels.length ? `{${labels}}` : expr;
}

function framesOf({ id, type, targets, fieldConfig }: Panel): DataFrame[] {
  const data = targets.flatMap((target) => picture.answers[id][target.refId].map(({ metric, value, values = value ? [value] : [] }) => {
    const numbers = values.map(([, text]) => Number(text.replace('Inf', 'Infinity')));
    return createDataFrame({
      refId: target.refId,
      fields: [
        // Where a value is missing, the interval makes a gap.
        { name: 'Time', type: FieldType.time, values: values.map(([time]) => time * 1000), config: { interval: picture.step * 1000 } },
        // A graph leaves out what is not finite.
        { name: 'Value', type: FieldType.number, values: type === 'stat' ? numbers : numbers.map((number) => (Number.isFinite(number) ? number : null)),
          labels: metric, config: { displayNameFromDS: nameOf(target, metric) } },
      ],
    });
  }));
  return applyFieldOverrides({ data, fieldConfig, fieldConfigRegistry: registry(fieldConfig), replaceVariables: (text) => text, theme, timeZone });
}

function Content({ panel, width, height }: { panel: Panel; width: number; height: number }) {
  const { type, fieldConfig, options } = panel;
  const frames = framesOf(panel);
  if (type === 'timeseries' && frames.length) {
    return <TimeSeries frames={frames} width={width} height={height} legend={options.legend} timeRange={timeRange} timeZone={timeZone} />;
  }
  if (type === 'stat') {
    const values = () => getFieldDisplayValues({ data: frames, fieldConfig, reduceOptions: options.reduceOptions, replaceVariables: (text) => text, theme, timeZone });
    return <VizRepeater source={frames} getValues={values} getAlignmentFactors={getDisplayValueAlignmentFactors} width={width} height={height}
      orientation={options.orientation} renderCounter={0} autoGrid renderValue={({ value, alignmentFactors, width, height, count }) =>
        <BigValue value={value.display} alignmentFactors={alignmentFactors} count={count} width={width} height={height} theme={theme}
          colorMode={options.colorMode} graphMode={options.graphMode} textMode={options.textMode} justifyMode={options.justifyMode} />} />;
  }
  const text = type === 'timeseries' ? 'No data' : `A panel of type ${type} is not drawn here`;
  return <div style={{ width, height, display: 'grid', placeItems: 'center', color: theme.colors.text.secondary }}>{text}</div>;
}

function Page() {
  const { title } = picture.dashboard;
  // The address ends with the rows that this picture has: #0-28.
  const [first, last] = location.hash.slice(1).split('-').map(Number);
  const panels = picture.dashboard.panels.filter(({ gridPos }) => gridPos.y >= first && gridPos.y < last);
  const bottom = Math.max(...panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  const height = (bottom - first) * (row + gap) - gap;
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div data-height={head + 2 * edge + height} style={{ padding: edge, width: picture.width, background: theme.colors.background.canvas }}>
        <header style={{ height: head }}>
          <strong>{title}</strong> · {from.utc().format('YYYY-MM-DD HH:mm:ss')} to {to.utc().format('HH:mm:ss')} UTC<br />
          <small style={{ color: theme.colors.text.secondary }}>{picture.note}</small>
        </header>
        <main style={{ position: 'relative', height }}>
          {panels.map((panel) => {
            const { x, y, w, h } = panel.gridPos;
            const [width, height] = [w * (column + gap) - gap, h * (row + gap) - gap];
            return (
              <div key={panel.id} data-panel={panel.title} style={{ position: 'absolute', left: x * (column + gap), top: (y - first) * (row + gap) }}>
                <PanelChrome title={panel.title} width={width} height={height}>
                  {(width, height) => <Content panel={panel} width={width} height={height} />}
                </PanelChrome>
              </div>
            );
          })}
        </main>
      </div>
    </ThemeContext.Provider>
  );
}

createRoot(document.body.appendChild(document.createElement('div'))).render(<Page />);
