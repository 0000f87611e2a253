// The driver finds the server by PGHOST, PGPORT, PGUSER and PGDATABASE.
export default { client: "pg", connection: {}, migrations: { directory: "./migrations", loadExtensions: [".mjs"] } };
