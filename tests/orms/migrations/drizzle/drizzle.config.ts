export default { dialect: "postgresql", schema: "./schema.mjs", out: "./out", dbCredentials: { url: process.env.DATABASE_URL } };
