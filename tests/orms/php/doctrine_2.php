<?php
// Doctrine ORM 2.14: the recipe, whose schema needs no change; and what IDENTITY and AUTO do, with new_keys on.
require 'Doctrine/ORM/autoload.php';
require getenv('RECIPES') . '/doctrine_recipe.php';

use Doctrine\ORM\Configuration;
use Doctrine\ORM\EntityManager;
use Doctrine\ORM\Mapping as ORM;
use Doctrine\ORM\Mapping\Driver\AttributeDriver;
use Doctrine\ORM\Tools\SchemaTool;

#[ORM\Entity]
#[ORM\Table(name: 'counted')]
class Counted
{
    #[ORM\Id]
    #[ORM\Column(type: 'bigint')]
    #[ORM\GeneratedValue(strategy: 'IDENTITY')]
    public $id;
}

#[ORM\Entity]
#[ORM\Table(name: 'automatic')]
class Automatic
{
    #[ORM\Id]
    #[ORM\Column(type: 'bigint')]
    #[ORM\GeneratedValue]
    public $id;
}

function same($got, $expected, string $what): void
{
    if ($got !== $expected) {
        fwrite(STDERR, "$what: got " . var_export($got, true) . ', expected ' . var_export($expected, true) . "\n");
        exit(1);
    }
    echo "  $what: ", json_encode($got), "\n";
}

$setup = new Configuration();
$setup->setMetadataDriverImpl(new AttributeDriver([]));
$setup->setProxyDir(sys_get_temp_dir());
$setup->setProxyNamespace('Proxies');
$manager = EntityManager::create(['driver' => 'pdo_pgsql', 'host' => getenv('PGHOST'), 'port' => getenv('PGPORT'),
    'user' => getenv('PGUSER'), 'dbname' => getenv('PGDATABASE')], $setup);
$connection = $manager->getConnection();
$connection->executeStatement("SET snowflake_id.new_keys = on");
$tool = new SchemaTool($manager);
$books = [$manager->getClassMetadata(Book::class)];
$tool->createSchema($books);
$update = $tool->getUpdateSchemaSql($books);
same(count(preg_grep('/DROP SEQUENCE snowflake_default/', $update)), 1, 'without the filter, the schema tool drops the default generator');
leaveGeneratorsOut($connection);
same($tool->getUpdateSchemaSql($books), [], 'with it, there is nothing to change');
for ($n = 0; $n < 3; $n++) {
    $manager->persist($book = new Book('Book'));
}
$manager->flush();
$workers = $connection->fetchFirstColumn('SELECT DISTINCT (snowflake_decode(id)).worker_id FROM books');
same($workers, [7], 'IDs of this server');
same((int) $connection->fetchOne('SELECT max(id) FROM books'), (int) $book->id, 'which the objects have');

$counted = [$manager->getClassMetadata(Counted::class)];
$tool->createSchema($counted);
try {
    $manager->persist(new Counted());
    $manager->flush();
    same('no error', 'an error', 'IDENTITY');
} catch (Doctrine\DBAL\Exception $error) {
    same((bool) preg_match('/relation "counted_id_seq" does not exist/', $error->getMessage()), true, 'IDENTITY asks for a sequence');
}
$update = implode('; ', $tool->getUpdateSchemaSql($counted));
same((bool) preg_match("/DROP DEFAULT.*CREATE SEQUENCE counted_id_seq.*SELECT setval\('counted_id_seq', \(SELECT MAX\(id\)/s", $update), true, 'and the schema tool goes back to one');

$tool->createSchema([$manager->getClassMetadata(Automatic::class)]);
$manager = EntityManager::create($connection, $setup);
$manager->persist(new Automatic());
$manager->persist($automatic = new Automatic());
$manager->flush();
same((int) $automatic->id, 2, 'AUTO counts');
same((bool) preg_match('/public\.automatic\.id/', $connection->fetchOne("SELECT detail FROM snowflake_status() WHERE item = 'keys'")), true, 'as status says');
