// Debezium: what it writes of keys, as numbers and as texts, of rows that were there and of rows that come.
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

class DebeziumTest {
    static final String HOST = System.getenv("PGHOST"), PORT = System.getenv("PGPORT"), USER = System.getenv("PGUSER"), DATABASE = System.getenv("PGDATABASE");
    static Connection server;

    static void same(Object got, Object expected, String what) {
        if (!got.equals(expected)) throw new AssertionError(what + ": got " + got + ", expected " + expected);
        System.out.println("  " + what + ": " + got);
    }

    /** Adds a row, and returns its ID. */
    static String add() throws Exception {
        try (Statement it = server.createStatement(); ResultSet row = it.executeQuery("INSERT INTO books (title) VALUES ('a title') RETURNING id")) {
            row.next();
            return row.getString(1);
        }
    }

    /** Checks the keys and values of the two rows, one of the snapshot and one that is streamed. */
    static void follow(String slot, String form, String... options) throws Exception {
        Properties properties = new Properties();
        for (String option : new String[] {"name=" + slot, "slot.name=" + slot, "publication.name=" + slot, "topic.prefix=t", "plugin.name=pgoutput",
                "connector.class=io.debezium.connector.postgresql.PostgresConnector", "offset.storage=org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
                "database.hostname=" + HOST, "database.port=" + PORT, "database.user=" + USER, "database.password=x", "database.dbname=" + DATABASE,
                "schema.include.list=public", "key.converter.schemas.enable=false", "value.converter.schemas.enable=false", "publication.autocreate.mode=all_tables"})
            properties.setProperty(option.split("=", 2)[0], option.split("=", 2)[1]);
        for (String option : options) properties.setProperty(option.split("=", 2)[0], option.split("=", 2)[1]);
        try (Statement it = server.createStatement()) { it.execute("TRUNCATE books"); }
        BlockingQueue<ChangeEvent<String, String>> events = new LinkedBlockingQueue<>();
        var engine = DebeziumEngine.create(Json.class).using(properties).notifying(events::add).build();
        var thread = Executors.newSingleThreadExecutor();
        String id = add();
        thread.execute(engine);
        for (String what : new String[] {"a row of the snapshot", "a row that comes"}) {
            if (what.equals("a row that comes")) id = add();
            var event = events.poll(60, TimeUnit.SECONDS);
            String wanted = String.format(form, id);
            same(event.key().contains(wanted), true, slot + ", " + what + ": " + event.key());
            same(event.value().contains(wanted), true, slot + ", " + what + ": " + event.value());
        }
        engine.close();
        thread.shutdown();
    }

    public static void main(String[] arguments) throws Exception {
        server = DriverManager.getConnection(String.format("jdbc:postgresql://%s:%s/%s", HOST, PORT, DATABASE), USER, "");
        try (Statement it = server.createStatement()) { it.execute("CREATE TABLE books (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), title text)"); }
        follow("numbers", "\"id\":%s");
        String cast = "=org.apache.kafka.connect.transforms.Cast$";
        follow("texts", "\"id\":\"%s\"", "transforms=flat,key,value", "transforms.flat.type=io.debezium.transforms.ExtractNewRecordState",
            "transforms.key.type" + cast + "Key", "transforms.key.spec=id:string", "transforms.value.type" + cast + "Value", "transforms.value.spec=id:string");
        server.close();
    }
}
